"""LongRoPE's search space (Ding et al. 2024, arXiv:2402.13753, section 3.2): all pairs, never falling, and the first tokens."""

from dataclasses import dataclass

import numpy as np

from lengthen.core import UsageError
from lengthen.core.errors import require_count, require_even, require_positive
from lengthen.core.frequency import require_factor
from lengthen.methods.longrope import starting_factors

from .space import Candidate, Random, Space, blend, redraw, rising

PAPER_STARTS = (0, 1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 64, 128, 256)
"""The paper's choices of n-hat (table 4). Configurations of transformers cannot say any but 0."""


@dataclass(frozen=True)
class LongRoPESpace(Space):
    """1 <= lambda_0 <= lambda_1 <= ... <= 1.25 s, on a grid of 0.01. The released code allows 1 + s instead."""

    dim: int
    """Channels that are turned."""
    scale: float
    """s, the new length over the trained one."""
    trained: int
    """Tokens."""
    base: float = 10_000.0
    starts: tuple[int, ...] = (0,)
    """Choices of n-hat; see PAPER_STARTS."""
    most: float = 1.25
    """Largest factor, over s."""
    step: float = 0.01

    def __post_init__(self):
        require_even("LongRoPESpace", "dim", self.dim)
        require_factor("LongRoPESpace", self.scale)
        require_count("LongRoPESpace", "trained", self.trained, "tokens", least=2)
        require_positive("LongRoPESpace", "step", self.step, "factors")
        if not self.starts or min(self.starts) < 0 or max(self.starts) > self.trained:
            raise UsageError(f"Tokens kept at the start are 0 to the trained length of {self.trained}, got {self.starts}.")
        if self.most < 1:
            raise UsageError(f"The largest factor is at least the scale, so 'most' is at least 1, got {self.most}.")

    @property
    def high(self) -> float:
        return self.most * self.scale

    def starting(self) -> list[Candidate]:
        """PI, NTK-aware and YaRN, as the paper's first individuals, each with the first choice of n-hat."""
        pairs = self.dim // 2
        ntk = self.scale ** (np.arange(pairs) / max(pairs - 1, 1))
        yarn = starting_factors(self.scale, self.trained, self.dim, self.base)
        known = ((self.scale,) * pairs, tuple(ntk.tolist()), yarn)
        return [Candidate(tuple(map(float, factors)), self.starts[0]) for factors in known]

    def contains(self, candidate: Candidate) -> bool:
        return candidate.start in self.starts and rising(candidate.factors, 1.0, self.high)

    def mutate(self, candidate: Candidate, rng: Random, probability: float) -> Candidate:
        factors = redraw(candidate.factors, 1.0, self.high, self.step, rng, probability)
        start = int(rng.choice(self.starts)) if rng.random() < probability else candidate.start
        return Candidate(tuple(factors), start)

    def cross(self, a: Candidate, b: Candidate, rng: Random, probability: float) -> Candidate:
        factors = blend(a.factors, b.factors, rng, probability)
        return Candidate(tuple(factors), b.start if rng.random() < probability else a.start)
