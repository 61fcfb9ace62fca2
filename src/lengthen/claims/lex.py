"""A Length-Extrapolatable Transformer: xPos, blockwise causal attention, resolution (Sun et al. 2022, arXiv:2212.10554)."""

from statistics import mean

from lengthen.evaluate import Comparison

from .verdict import HOLDS, Verdict, judge, show

PAPER = "2212.10554"


def lex_claims(comparison: Comparison) -> list[Verdict]:
    """xPos degrades more slowly than RoPE, BCA cures RoPE, resolution falls for RoPE and not for xPos with BCA."""
    length = comparison.train_length
    far = [n for n in comparison.lengths if n > length]
    if not far:
        return []
    made = [_slower(comparison, n) for n in far if n == 4 * length] + [_cure(comparison, far), _resolution(comparison, length)]
    return [v for v in made if v is not None]


def _slower(comparison: Comparison, length: int) -> Verdict | None:
    xpos, rope = comparison.cell("xpos", length), comparison.cell("rope", length)
    if xpos is None or rope is None:
        return None
    claim = f"At {length} tokens xPos loses far less than RoPE, both without blockwise causal attention."
    measured = f"xPos {show(xpos.change)}; RoPE {show(rope.change)}"
    return Verdict(PAPER, claim, measured, judge(xpos.change.low, xpos.change.high, below=rope.change.value / 2))


def _cure(comparison: Comparison, lengths: list[int]) -> Verdict | None:
    cells = [comparison.cell("rope", n, control="bca") for n in lengths]
    if None in cells:
        return None
    worst = max(cells, key=lambda c: abs(c.change.value))
    claim = f"Blockwise causal attention, at reading time only, brings RoPE back to within {HOLDS} nats of its in-length value."
    measured = f"worst of {len(cells)} lengths, at {worst.length}: {show(worst.change)}"
    verdict = judge(worst.change.low, worst.change.high, below=HOLDS)
    return Verdict(PAPER, claim, measured, verdict if worst.change.value > -HOLDS else "unresolved")


def _resolution(comparison: Comparison, length: int) -> Verdict | None:
    rope, xpos = (_measured(comparison, m, c) for m, c in (("rope", "none"), ("xpos", "bca")))
    if rope is None or xpos is None:
        return None
    at = [str(n * length) for n in (1, 2, 4)]
    line = lambda found: " / ".join(f"{found[n]:+.4f}" for n in at)
    kept = xpos[at[1]] >= xpos[at[0]] - 1e-3 and rope[at[1]] < rope[at[0]]
    return Verdict(
        PAPER,
        "The attention resolution of trained models falls for RoPE beyond L, and not for xPos with blockwise causal attention.",
        f"measured at L / 2L / 4L: RoPE {line(rope)}; xPos with BCA {line(xpos)}",
        "reproduced" if kept else "not reproduced",
    )


def _measured(comparison: Comparison, method: str, control: str) -> dict[str, float] | None:
    """Mean over seeds of the measured resolution, by length."""
    found = [r["resolution"][control]["measured"] for r in comparison.runs(method) if "resolution" in r]
    found = [f for f in found if isinstance(f, dict)]
    return {n: mean(f[n] for f in found) for n in found[0]} if found else None
