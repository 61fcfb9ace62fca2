"""What `lengthen advise` found, as a table for the terminal and a page."""

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup
from plotly import graph_objects as go
from plotly.offline import get_plotlyjs

from lengthen.advise import Advice
from lengthen.advise.advice import perplexity, resampled
from lengthen.advise.ranking import Row, Tally
from lengthen.evaluate import Interval, provenance
from lengthen.evaluate.records import replace_file

from .page import Grid, Mark, Section

RULE = (
    "Rank: by nats per token, the mean of the loss inside the old window and the loss from there to the target. Recommended: the "
    "first that sees the whole target."
)


def quality(found: Advice) -> Grid:
    """What a method makes of text, ranked."""
    head = ["", "method", f"to {found.trained}", "lost there", f"to {found.target}", "end", "behind", "near", "far"]
    return Grid(head, _marked(found, lambda row, place: [str(place), row.candidate.spec, *_numbers(row)]))


def costs(found: Advice) -> Grid:
    """What a method takes, and what takes it."""
    head = ["", "method", "sees", "decode", "cache MiB", "tuning", "runs in"]
    return Grid(head, _marked(found, lambda row, place: [str(place), row.candidate.spec, *_facts(row)]))


def _numbers(row: Row) -> list[str]:
    nats = row.buckets[-1].nats
    losses = [ppl(row.inside), change(row.lost), ppl(row.beyond), ppl(nats), change(row.behind)]
    return [*losses, answered(row.near), answered(row.far)]


def _facts(row: Row) -> list[str]:
    readers = ", ".join(row.facts.readers) if row.facts.readers else "lengthen"
    return [
        str(row.facts.sees),
        "" if row.decode is None else f"{row.decode:.2f}x",
        f"{row.cache_bytes / 2**20:.1f}",
        row.candidate.tuning,
        readers,
    ]


def _marked(found: Advice, cells: Callable[[Row, int], list[str]]) -> list[list[Mark]]:
    chosen = found.recommended()
    return [[Mark(c, "good" if row is chosen else "") for c in cells(row, n)] for n, row in enumerate(found.rows, 1)]


def caption(found: Advice) -> str:
    return (
        f"Perplexity inside the old window (to {found.trained}), from there to {found.target}, and in the last quarter window (end). Lost, "
        f"behind: nats per token more than the checkpoint as it is, and than the first; ± is half a 95% paired bootstrap interval over "
        f"{resampled(found.common)}. Near, far: questions answered about needles inside and beyond the old window, seen from the end. "
        f"{RULE}"
    )


COSTS = (
    "Sees: tokens that the last one sees. Decode: a token behind the passage over the stock model's. Cache: one row at the target. "
    "Tuning: published for it (yes), both ways (helps), or as training-free (no). Runs in: what needs no lengthen, by a plain "
    "configuration or by flags."
)


def advice_tables(found: Advice) -> list:
    """For the terminal."""
    return [_table(quality(found), caption(found)), _table(costs(found), COSTS)]


def _table(grid: Grid, note: str):
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(*grid.header, box=SIMPLE_HEAD, caption=note, caption_justify="left", pad_edge=False, padding=(0, 1, 0, 0))
    for column in table.columns[2:]:
        column.justify = "right"
    table.columns[-1].justify = "left"
    for row in grid.rows:
        table.add_row(*[cell.text for cell in row], style="bold" if row[0].mark else None)
    return table


def write_advice_page(found: Advice, path: Path) -> None:
    """One self-contained HTML file."""
    template = Environment(autoescape=True, trim_blocks=True).from_string((files(__package__) / "page.html").read_text("utf-8"))
    page = template.render(
        title=f"{found.model}: from {found.trained} to {found.target} tokens",
        subtitle=" ".join([*found.sentences(), *filter(None, [found.line()])]),
        plotly=Markup(get_plotlyjs()),
        failures=[f"{spec}: {why}" for spec, why in found.failures.items()],
        sections=[*_ranked(found), _by_position(found)],
        provenance=json.dumps({"passages": list(found.passages), **provenance()}, indent=2),
    )
    replace_file(path, page.encode())


def ppl(nats: float) -> str:
    value = perplexity(nats)
    return f"{value:.2f}" if value < 1e5 else f"{value:.1e}"


def change(found: Interval | None) -> str:
    """+0.012 ±0.004, or nothing."""
    if found is None:
        return ""
    return f"{found.value:+.4f}" + ("" if found.low is None or found.high is None else f" ±{(found.high - found.low) / 2:.4f}")


def answered(found: Tally) -> str:
    return f"{found.right}/{found.asked}" if found.asked else ""


def _ranked(found: Advice) -> list[Section]:
    return [Section("Ranked", caption(found), None, (quality(found),)), Section("Costs", COSTS, None, (costs(found),))]


def _by_position(found: Advice) -> Section:
    figure = go.Figure()
    for row in found.rows:
        ends = [b.stop for b in row.buckets]
        figure.add_scatter(x=ends, y=[perplexity(b.nats) for b in row.buckets], name=row.candidate.spec, mode="lines+markers")
    figure.add_vline(x=found.trained, line_dash="dot")
    figure.update_layout(xaxis_title="up to token", yaxis_title="perplexity", yaxis_type="log", height=520)
    note = "Perplexity by quarter of the trained length. Texts are harder in some places than in others: compare methods at one place."
    return Section("By position", note, Markup(figure.to_html(full_html=False, include_plotlyjs=False)))
