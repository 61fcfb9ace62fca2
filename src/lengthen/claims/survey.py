"""Length Extrapolation of Transformers: a survey from the perspective of positional encoding (arXiv:2312.17044)."""

from lengthen.core import methods, parse
from lengthen.evaluate import Comparison

from .verdict import BREAKS, HOLDS, Verdict, show

PAPER = "2312.17044"


def survey_claims(comparison: Comparison) -> list[Verdict]:
    """A row for each family of encodings, and the survey's statement on absolute against relative ones."""
    far = [n for n in comparison.lengths if n > comparison.train_length]
    if not far:
        return []
    rows = {m: comparison.cell(m, far[-1]) for m in comparison.methods}
    rows = {m: c for m, c in rows.items() if c is not None}
    made = [_row(m, c, comparison) for m, c in rows.items()] + _missing(comparison)
    return made + _relative({m: c for m, c in rows.items() if c.reason is None})


def family(spec: str) -> str:
    """Where the survey would put a spec: randomised if it is, else the family of its last encoding; patterns and
    temperatures only change one."""
    parts = [m for m, _ in parse(spec)]
    encodings = [m.family for m in parts if m.family == "randomised" or not m.modifies]
    return "randomised" if "randomised" in encodings else encodings[-1] if encodings else parts[0].family


def _row(method: str, cell, comparison: Comparison) -> Verdict:
    own, claim = comparison.cell(method, comparison.train_length), f"{family(method)}: {method} at {cell.length} tokens."
    if cell.reason is not None:
        return Verdict(PAPER, claim, f"in-length {own.loss.value:.3f} nats; {cell.reason}", "no answer")
    return Verdict(
        PAPER,
        claim,
        f"in-length {own.loss.value:.3f} nats; change {show(cell.change)}",
        "holds" if cell.change.value <= HOLDS else "degrades" if cell.change.value <= BREAKS else "breaks",
    )


def _missing(comparison: Comparison) -> list[Verdict]:
    """Families of the registry that the comparison leaves out, in one row."""
    there = {m.family for m in methods().values() if not m.modifies}
    missing = sorted(there - {family(m) for m in comparison.methods})
    return [Verdict(PAPER, "Other families: not compared here.", ", ".join(missing), "not compared")] if missing else []


def _relative(rows) -> list[Verdict]:
    """The best relative method against the best absolute one."""
    absolute = {m: c for m, c in rows.items() if family(m) == "absolute"}
    relative = {m: c for m, c in rows.items() if family(m) in ("rotary", "additive bias", "relative")}
    if not absolute or not relative:
        return []
    a, r = (min(group, key=lambda m: group[m].change.value) for group in (absolute, relative))
    better = rows[r].change.high is not None and rows[r].change.high < rows[a].change.value
    claim = "Relative encodings are more robust to a change of length than absolute ones (section 3)."
    measured = f"best relative, {r}: {show(rows[r].change)}; best absolute, {a}: {show(rows[a].change)}"
    return [Verdict(PAPER, claim, measured, "reproduced" if better else "not reproduced")]
