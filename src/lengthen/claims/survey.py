"""Length Extrapolation of Transformers: a survey from the perspective of positional encoding (arXiv:2312.17044)."""

from lengthen.core import parse
from lengthen.evaluate import Comparison

from .verdict import Verdict, show

PAPER = "2312.17044"


def survey_claims(comparison: Comparison) -> list[Verdict]:
    """A row for each family of encodings, and the survey's statement on absolute against relative ones."""
    far = [n for n in comparison.lengths if n > comparison.train_length]
    if not far:
        return []
    rows = {m: comparison.cell(m, far[-1]) for m in comparison.methods}
    rows = {m: c for m, c in rows.items() if c is not None}
    return [_row(m, c, comparison) for m, c in rows.items()] + _relative(rows)


def family(spec: str) -> str:
    """Where the survey would put a spec: the family of its last part that is not a plain pattern."""
    families = [m.family for m, _ in parse(spec)]
    return next((f for f in reversed(families) if f != "pattern"), families[0])


def _row(method: str, cell, comparison: Comparison) -> Verdict:
    own = comparison.cell(method, comparison.train_length)
    return Verdict(
        PAPER,
        f"{family(method)}: {method} at {cell.length} tokens.",
        f"in-length {own.loss.value:.3f} nats; change {show(cell.change)}",
        "holds" if cell.change.value <= 0.03 else "degrades" if cell.change.value <= 0.3 else "breaks",
    )


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
