"""Contestants timed in turn, so that whatever else the machine does strikes them alike."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter

import numpy as np

Step = Callable[[], object]
Clock = Callable[[], float]
"""Seconds; only differences count."""


@dataclass(frozen=True)
class Ratio:
    """How long one contestant takes, in times of another."""

    seconds: float
    """Median per call of the first."""
    peer_seconds: float
    """Median per call of the second."""
    ratio: float
    """Median over rounds of first / second, both of the same round."""
    low: float
    """Lower quartile of that."""
    high: float
    """Upper quartile."""
    rounds: int

    @staticmethod
    def of(own: list[float], peer: list[float]) -> "Ratio":
        """Of seconds per call, one number per round each."""
        low, middle, high = np.quantile(np.divide(own, peer), (0.25, 0.5, 0.75)).tolist()
        return Ratio(float(np.median(own)), float(np.median(peer)), middle, low, high, len(own))


def interleave(
    steps: Mapping[str, Step],
    *,
    rounds: int,
    budget: float = math.inf,
    least: int = 3,
    shortest: float = 5e-3,
    clock: Clock = perf_counter,
    wait: Callable[[], None] = lambda: None,
) -> dict[str, list[float]]:
    """Seconds per call of every step, one number per round; odd rounds go through them backwards.

    Each is first called once or twice, unmeasured. budget: seconds after which no round begins, warm-up included, once
    `least` are done. shortest: seconds below which a call is repeated within its round. wait: called before the clock is
    read, for devices that run behind.
    """
    began = clock()
    calls = {name: _calls(step, shortest, clock, wait) for name, step in steps.items()}
    found: dict[str, list[float]] = {name: [] for name in steps}
    for n in range(rounds):
        if n >= least and clock() - began >= budget:
            break
        for name in list(steps)[:: 1 if n % 2 == 0 else -1]:
            found[name].append(_time(steps[name], calls[name], clock, wait))
    return found


def _calls(step: Step, shortest: float, clock: Clock, wait: Callable[[], None]) -> int:
    """How many calls last at least `shortest` seconds. The first call may compile or allocate, so short ones are repeated."""
    first = _time(step, 1, clock, wait)
    seconds = first if first > 100 * shortest else _time(step, 1, clock, wait)
    return max(1, math.ceil(shortest / seconds)) if seconds > 0 else 1


def _time(step: Step, calls: int, clock: Clock, wait: Callable[[], None]) -> float:
    wait()
    began = clock()
    for _ in range(calls):
        step()
    wait()
    return (clock() - began) / calls
