"""LongRoPE2's search space (Shang et al. 2025, arXiv:2502.20082, section 3.3): the pairs beyond the critical one.

In theory, pairs from ceil(d/2 log_base(L / 2 pi)) on do not turn once within the trained length L and must be stretched by s. In
practice pairs that turn a few times are too little trained as well, so the real critical pair is searched, from the one that
turns ten times on. From it on, factors lie in [s, 2 s] and never fall; before it, they follow NTK: one base for all.
"""

from dataclasses import dataclass
from math import ceil, log, pi

from lengthen.core import UsageError
from lengthen.core.errors import require_count, require_even, require_positive
from lengthen.core.frequency import require_factor

from .space import Candidate, Random, Space, blend, redraw, rising

PERIODS = 10
"""Turns within the trained length of the first pair that may be the critical one."""


def turning_pair(turns: float, dim: int, base: float, trained: int) -> int:
    """ceil(dim/2 log_base(L / (2 pi turns))): the first pair that turns at most so often within L tokens."""
    return ceil(dim / 2 * log(trained / (2 * pi * turns)) / log(base))


@dataclass(frozen=True)
class LongRoPE2Space(Space):
    """lambda_i in [s, 2 s] for i >= c, never falling; lambda_i = lambda_c^(i/c) for i < c; c in `critical`."""

    dim: int
    scale: float
    """s, the new length over the trained one."""
    trained: int
    base: float = 10_000.0
    step: float = 0.01

    def __post_init__(self):
        require_even("LongRoPE2Space", "dim", self.dim)
        require_factor("LongRoPE2Space", self.scale)
        require_count("LongRoPE2Space", "trained", self.trained, "tokens", least=2)
        require_positive("LongRoPE2Space", "step", self.step, "factors")
        if self.critical.start >= self.dim // 2:
            raise UsageError(
                f"At base {self.base:g} every one of the {self.dim // 2} pairs turns more than {PERIODS} times within {self.trained} tokens, "
                "so none has to be stretched."
            )

    @property
    def critical(self) -> range:
        """Where the critical pair may lie."""
        first = max(1, turning_pair(PERIODS, self.dim, self.base, self.trained))
        last = max(first, min(self.dim // 2 - 1, turning_pair(1, self.dim, self.base, self.trained)))
        return range(first, last + 1)

    def made(self, tail: list[float], critical: int) -> Candidate:
        """The candidate with these factors from the critical pair on."""
        head = [tail[0] ** (i / critical) for i in range(critical)]
        return Candidate((*head, *tail), 0, critical)

    def starting(self) -> list[Candidate]:
        """NTK up to each possible critical pair, and s beyond."""
        return [self.made([self.scale] * (self.dim // 2 - c), c) for c in self.critical]

    def contains(self, candidate: Candidate) -> bool:
        c, factors = candidate.critical, candidate.factors
        if c is None or c not in self.critical or candidate.start:
            return False
        ntk = all(abs(factors[i] - factors[c] ** (i / c)) < 1e-9 * factors[c] for i in range(c))
        return ntk and rising(factors[c:], self.scale, 2 * self.scale)

    def mutate(self, candidate: Candidate, rng: Random, probability: float) -> Candidate:
        tail, c = list(candidate.factors[candidate.critical :]), candidate.critical
        if rng.random() < probability:
            tail, c = self._moved(tail, c, int(rng.choice(self.critical)))
        return self.made(redraw(tail, self.scale, 2 * self.scale, self.step, rng, probability), c)

    def cross(self, a: Candidate, b: Candidate, rng: Random, probability: float) -> Candidate:
        c = b.critical if rng.random() < probability else a.critical
        tails = (self._moved(list(x.factors[x.critical :]), x.critical, c)[0] for x in (a, b))
        return self.made(blend(*tails, rng, probability), c)

    def _moved(self, tail: list[float], old: int, new: int) -> tuple[list[float], int]:
        """The tail that begins at another pair: what joins it takes the least that is allowed, s."""
        return ([self.scale] * (old - new) + tail if new < old else tail[new - old :]), new
