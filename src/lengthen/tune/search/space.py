"""What is searched: a divisor for every rotary pair, and how many tokens at the start are left alone."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Random = np.random.Generator


@dataclass(frozen=True)
class Candidate:
    """theta_i is divided by factors[i], highest frequency first, from token `start` on."""

    factors: tuple[float, ...]
    start: int = 0
    """n-hat: tokens that keep the trained frequencies."""
    critical: int | None = None
    """The pair from which factors are free (LongRoPE2); None: all are."""


class Space(ABC):
    """Constraints on candidates, and the moves that keep them."""

    @abstractmethod
    def starting(self) -> list[Candidate]:
        """Known rules that satisfy the constraints: where the search begins."""

    @abstractmethod
    def contains(self, candidate: Candidate) -> bool:
        """Whether it satisfies the constraints."""

    @abstractmethod
    def mutate(self, candidate: Candidate, rng: Random, probability: float) -> Candidate:
        """Each part is drawn anew with that probability, within the constraints."""

    @abstractmethod
    def cross(self, a: Candidate, b: Candidate, rng: Random, probability: float) -> Candidate:
        """`a` with each part taken from `b` with that probability, wherever the constraints still hold."""


def redraw(factors: Sequence[float], low: float, high: float, step: float, rng: Random, probability: float) -> list[float]:
    """Non-decreasing factors in [low, high]: some of them drawn anew from the grid between their neighbours, one by one."""
    new = list(factors)
    for n in range(len(new)):
        if rng.random() >= probability:
            continue
        floor = new[n - 1] if n else low
        ceiling = new[n + 1] if n + 1 < len(new) else high
        cells = int(np.floor((ceiling - floor) / step + 1e-9))
        new[n] = max(floor, min(ceiling, round(floor + step * int(rng.integers(cells + 1)), 6)))
    return new


def blend(a: Sequence[float], b: Sequence[float], rng: Random, probability: float) -> list[float]:
    """`a`, with factors of `b` in some places, wherever the order allows."""
    new = list(a)
    for n in range(len(new)):
        if rng.random() >= probability:
            continue
        fits = (n == 0 or new[n - 1] <= b[n]) and (n + 1 == len(new) or b[n] <= new[n + 1])
        new[n] = b[n] if fits else new[n]
    return new


def rising(factors: Sequence[float], low: float, high: float) -> bool:
    """Whether they never fall and lie in [low, high]."""
    values = np.asarray(factors)
    return bool((np.diff(values) >= 0).all() and values[0] >= low - 1e-9 and values[-1] <= high + 1e-9)
