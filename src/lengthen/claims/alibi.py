"""Train Short, Test Long (Press et al. 2022, arXiv:2108.12409)."""

from lengthen.evaluate import Comparison

from .verdict import HOLDS, Verdict, judge, show

PAPER = "2108.12409"
NOISE = 0.05
"""Ratios of speed and memory this close to 1 decide nothing."""


def alibi_claims(comparison: Comparison) -> list[Verdict]:
    """Flat beyond L, early-token curse, cheaper than training at 2L."""
    length = comparison.train_length
    far = [n for n in comparison.lengths if n > length]
    made = [_flat(comparison, min(far, key=lambda n: abs(n - 8 * length))), _curse(comparison, far[-1])] if far else []
    return [v for v in [*made, *_cost(comparison, 2 * length)] if v is not None]


def _flat(comparison: Comparison, length: int) -> Verdict | None:
    cell = comparison.cell("alibi", length)
    if cell is None:
        return None
    claim = f"ALiBi trained at {comparison.train_length} is flat at {length} tokens: within {HOLDS} nats on fixed targets."
    return Verdict(PAPER, claim, show(cell.change), judge(cell.change.low, cell.change.high, below=HOLDS))


def _curse(comparison: Comparison, length: int) -> Verdict | None:
    apart, fixed = (comparison.cell("alibi", length, p) for p in ("non_overlapping", "fixed_targets"))
    if apart is None or fixed is None:
        return None
    claim = (
        f"Non-overlapping windows of {length} tokens flatter ALiBi: their loss falls from the training length on, because fewer "
        "tokens stand early in a window (section 5 and appendix B); fixed targets do not show that gain."
    )
    measured = f"non-overlapping {show(apart.change)}; fixed targets {show(fixed.change)}"
    return Verdict(PAPER, claim, measured, judge(apart.change.low, apart.change.high, below=0.0))


def _cost(comparison: Comparison, length: int) -> list[Verdict]:
    """Speed, memory, and loss at 2L for equal time."""
    cost = comparison.cost
    if cost is None:
        return []
    short, long = cost["alibi"], cost["sinusoidal"]
    speed = Verdict(
        PAPER,
        f"Training ALiBi at {short['length']} is faster than training sinusoidal at {long['length']}.",
        f"{short['tokens_per_s']:,.0f} against {long['tokens_per_s']:,.0f} tokens/s, ratio {cost['speed_ratio']:.2f}",
        _ratio(1 / cost["speed_ratio"]),
    )
    memory = Verdict(
        PAPER,
        f"Training ALiBi at {short['length']} takes less memory than sinusoidal at {long['length']}.",
        f"{short['peak_mib']:.0f} against {long['peak_mib']:.0f} MiB beyond the idle process, at equal tokens per step",
        _ratio(short["peak_mib"] / long["peak_mib"]),
    )
    mine, other = comparison.cell("alibi", length), comparison.long_cell(length)
    if mine is None or other is None:
        return [speed, memory]
    gap = mine.loss.value - other.loss.value
    loss = Verdict(
        PAPER,
        f"Read at {length}, ALiBi trained at {short['length']} loses no more than sinusoidal trained at {length} for the same time.",
        f"{mine.loss.value:.3f} against {other.loss.value:.3f} nats ({gap:+.3f})",
        "reproduced" if gap <= 0 else "not reproduced",
    )
    return [speed, memory, loss]


def _ratio(mine: float) -> str:
    """A cost of less than 1 times the other's is reproduced; within NOISE of it, nothing is decided."""
    return "reproduced" if mine < 1 - NOISE else "not reproduced" if mine > 1 + NOISE else "unresolved"
