"""Frequency rules of rotary encodings: numbers in, numbers out; no tensors, no sequence length."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from .errors import require_even, require_positive


class FrequencyRule(ABC):
    """Angular frequencies of the channel pairs, in radians per token.

    Rules return numpy float64, so that neither `.bfloat16()` nor a meta device can touch them.
    """

    mscale: float = 1.0
    """Multiplies queries and keys alike; logits grow by its square."""

    @abstractmethod
    def inv_freq(self, dim: int) -> np.ndarray:
        """float64 [dim/2], radians per token, highest frequency first."""


@dataclass(frozen=True)
class Geometric(FrequencyRule):
    """theta_i = base^(-2i/dim) for i = 0..dim/2-1 (Su et al. 2021, arXiv:2104.09864, section 3.2.2)."""

    base: float = 10_000.0

    def __post_init__(self):
        require_positive("Geometric", "base", self.base, "radians")

    def inv_freq(self, dim: int) -> np.ndarray:
        require_even("Geometric", "dim", dim)
        return self.base ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
