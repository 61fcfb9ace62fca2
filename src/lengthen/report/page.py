"""The report: one self-contained HTML file."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from lengthen.claims import verdicts
from lengthen.claims.verdict import BREAKS, HOLDS
from lengthen.evaluate import Comparison
from lengthen.evaluate.records import replace_file

from .figures import loss_by_length, loss_by_position, speeds, training_curves
from .tables import ARMS, CAPTION, headline


@dataclass(frozen=True)
class Mark:
    """A cell of a table, with the class that colours it."""

    text: str
    mark: str = ""


@dataclass(frozen=True)
class Grid:
    """A table; `prose` cells are aligned left and wrap."""

    header: Sequence[str]
    rows: Sequence[Sequence[Mark]]
    title: str = ""
    prose: bool = False


@dataclass(frozen=True)
class Section:
    """A heading, what it shows, a figure and tables."""

    title: str
    note: str
    figure: Markup | None = None
    tables: Sequence[Grid] = field(default_factory=tuple)


def write_page(found: Comparison, folder: Path) -> Path:
    """Writes `folder`/report.html; it needs no network and no other file."""
    template = Environment(autoescape=True, trim_blocks=True).from_string((files(__package__) / "page.html").read_text("utf-8"))
    failures = [
        f"{r['spec']['method']}, seed {r['spec']['seed']}: {r['training']['reason']} (step {r['training']['steps']})"
        for r in found.failures()
    ]
    page = template.render(
        title=f"Trained at {found.train_length} tokens, read at {found.lengths[-1]}",
        subtitle=_subtitle(found),
        plotly=Markup(get_plotlyjs()),
        failures=failures,
        sections=[_summary(found), *_protocols(found), *_rest(found, folder)],
        provenance=json.dumps(
            {"settings": found.settings, **(found.results[0]["provenance"] if found.results else {})}, indent=2
        ),
    )
    path = folder / "report.html"
    replace_file(path, page.encode())
    return path


def _subtitle(found: Comparison) -> str:
    s = found.settings
    return (
        f"{len(found.methods)} methods, {len(s['seeds'])} seeds, preset {s['preset']}, {s['steps']} steps of {s['batch']} x "
        f"{found.train_length} tokens, data {s['data']}, tokenizer {s['tokenizer']}. Same data order and same initial weights."
    )


def _summary(found: Comparison) -> Section:
    header, rows = headline(found)
    others = [n for n in found.lengths if n != found.train_length]
    marked, method = [], ""
    for row in rows:
        method = row[0] if row[0] in found.methods else method
        control = next((c for c, label in ARMS if label and label == row[0].strip()), "none")
        cells = [found.cell(method, n, control=control) for n in others]
        marked.append([*map(Mark, row[:2]), *[Mark(t, _mark(c)) for t, c in zip(row[2:], cells, strict=True)]])
    claims = [
        [Mark(v.paper), Mark(v.claim), Mark(v.measured), Mark(v.verdict, _verdict_mark(v.verdict))] for v in verdicts(found)
    ]
    table = Grid(header, marked)
    claimed = Grid(("paper", "claim", "measured", "verdict"), claims, "The founding papers in small", prose=True)
    return Section("Which hold and which break", CAPTION, None, (table, claimed))


def _mark(cell) -> str:
    if cell is None or cell.reason is not None:
        return ""
    return "good" if cell.change.value <= HOLDS else "fair" if cell.change.value <= BREAKS else "bad"


def _verdict_mark(verdict: str) -> str:
    return {
        "reproduced": "good",
        "holds": "good",
        "unresolved": "fair",
        "degrades": "fair",
        "no answer": "",
        "not compared": "",
    }.get(verdict, "bad")


NOTES = {
    "fixed_targets": "The same last tokens of each document with growing context: flat means that more context is not used, down "
    "that it helps, up that it harms.",
    "sliding": "A window that moves by its stride; only the newest tokens are scored, so every token has at least "
    "window - stride of context.",
    "non_overlapping": "Disjoint windows, all tokens scored. Longer windows look better merely because fewer tokens stand early in "
    "a window; read it beside fixed targets.",
}


def _protocols(found: Comparison) -> list[Section]:
    made = []
    for protocol in dict.fromkeys(key[2] for key in found.cells):
        header, rows = headline(found, protocol)
        grid = Grid(header, [[Mark(t) for t in row] for row in rows], "Change from the loss at L, nats per token")
        note = (
            NOTES.get(protocol, "")
            + " Controls are in the legend: window (dotted) and BCA (dashed). Lines carry 95% intervals."
        )
        figure = _html(loss_by_length(found, protocol))
        tables = (_losses(found, protocol), grid) if protocol != "fixed_targets" else (_losses(found, protocol),)
        made.append(Section(f"Protocol: {protocol.replace('_', ' ')}", note, figure, tables))
    return made


def _losses(found: Comparison, protocol: str) -> Grid:
    """Nats per token and bits per byte, seeds shown."""
    rows = []
    for method in found.methods:
        cells = [found.cell(method, n, protocol) for n in found.lengths]
        rows.append([Mark(method), *[Mark(_loss(c)) for c in cells]])
    return Grid(["method", *map(str, found.lengths)], rows, "Nats per token (each seed) and bits per byte")


def _loss(cell) -> str:
    if cell is None or cell.reason is not None:
        return "" if cell is None else "no answer"
    seeds = ", ".join(f"{v:.3f}" for v in cell.by_seed)
    return f"{cell.loss.value:.3f} ({seeds})" + ("" if cell.bits_per_byte is None else f" {cell.bits_per_byte:.3f} b/B")


def _rest(found: Comparison, folder: Path) -> list[Section]:
    runs = [[Mark(x) for x in _run(r)] for m in found.methods for r in found.runs(m)]
    header = ("run", "tokens/s", "peak MiB", "seconds", "final loss", "parameters", "of the encoding")
    return [
        Section(
            "Loss against position",
            "Mean over documents and seeds in the longest window: where a method breaks.",
            _html(loss_by_position(found)),
        ),
        Section(
            "Attention resolution",
            "R(s) of Sun et al. 2022 (arXiv:2212.10554): how sharply scores fall with distance; 0 where all distances score alike. "
            "Analytic: from the encoding's own scores. Measured: from the trained models' mean logit at each distance, over heads, "
            "layers and queries, mean of seeds.",
            None,
            (_resolution(found),),
        ),
        Section("Training", "Every run; methods share a colour over seeds.", _html(training_curves(found, folder))),
        Section(
            "Speed and size",
            "Runs trained side by side, so speeds compare with each other only.",
            _html(speeds(found)),
            (Grid(header, runs),),
        ),
    ]


def _run(result) -> list[str]:
    spec, t, p = result["spec"], result["training"], result["parameters"]
    show = lambda value, form: "" if value is None else format(value, form)
    return [
        f"{spec['method']}, seed {spec['seed']}",
        show(t["tokens_per_s"], ",.0f"),
        show(t["peak_mib"], ".0f"),
        show(t["seconds"], ".1f"),
        show(t["final_loss"], ".3f"),
        show(p["model"], ","),
        show(p["scheme"], ","),
    ]


def _resolution(found: Comparison) -> Grid:
    length = found.train_length
    at = [str(n * length) for n in (1, 2, 4)]
    header = ["method", *[f"{kind} {n}" for kind in ("analytic", "measured") for n in ("L", "2L", "4L")]]
    rows = []
    for method in found.methods:
        runs = [r["resolution"] for r in found.runs(method) if "resolution" in r]
        for control, label in (("none", method), ("bca", "  with BCA")):
            if runs:
                kinds = [[r[control][kind] for r in runs] for kind in ("analytic", "measured")]
                rows.append([Mark(label), *[Mark(_over_seeds(kind, n)) for kind in kinds for n in at]])
    return Grid(header, rows)


def _over_seeds(found: list, length: str) -> str:
    numbers = [f[length] for f in found if isinstance(f, dict) and f[length] is not None]
    return f"{sum(numbers) / len(numbers):+.4f}" if len(numbers) == len(found) else "no answer"


def _html(figure) -> Markup:
    return Markup(figure.to_html(full_html=False, include_plotlyjs=False))
