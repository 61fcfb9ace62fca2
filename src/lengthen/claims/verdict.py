"""A claim of a paper, what was measured for it, and what follows."""

from dataclasses import dataclass

HOLDS, BREAKS = 0.03, 0.3
"""Nats per token: up to the first a change counts as held, beyond the second as broken."""


@dataclass(frozen=True)
class Verdict:
    """One claim."""

    paper: str
    claim: str
    """The paper's statement, in this project's words."""
    measured: str
    """The numbers, with their unit and interval."""
    verdict: str
    """'reproduced', 'not reproduced', or 'unresolved' (the interval holds both answers); of a row of the survey 'holds',
    'degrades', 'breaks' or 'no answer'."""


def judge(low: float | None, high: float | None, *, below: float | None = None, above: float | None = None) -> str:
    """Whether an interval lies wholly below or above a bound."""
    if low is None or high is None:
        return "unresolved"
    if below is not None:
        return "reproduced" if high <= below else "not reproduced" if low > below else "unresolved"
    return "reproduced" if low >= above else "not reproduced" if high < above else "unresolved"


def show(interval) -> str:
    """+0.012 [+0.003, +0.020] nats."""
    if interval.low is None:
        return f"{interval.value:+.3f} nats ({interval.note})"
    return f"{interval.value:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}] nats"
