"""Frequency rules of rotary encodings: numbers in, numbers out; no tensors."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from .errors import UsageError, require_even, require_positive


class FrequencyRule(ABC):
    """Angular frequencies of the channel pairs, in radians per token. Knows no sequence length: see `Adaptive`.

    Rules return numpy float64, so that neither `.bfloat16()` nor a meta device can touch them.
    """

    mscale: float = 1.0
    """Multiplies queries and keys alike, in the channels that turn; their part of the logits grows by its square."""
    head_scale: float = 1.0
    """Multiplies q . k of the whole head, channels that do not turn included (DeepSeek's softmax scale)."""

    @abstractmethod
    def inv_freq(self, dim: int) -> np.ndarray:
        """float64 [dim/2], radians per token, highest frequency first."""

    @property
    def logit_multiplier(self) -> float:
        """How many times as large q . k of the turned channels is as without the rule's scales."""
        return self.mscale**2 * self.head_scale


class Adaptive(ABC):
    """A rule that depends on the length of the text: the only place where a length enters.

    It is settled before the first key is cached and never changes under a cache, so no logit depends on how many tokens
    follow. Texts of several lengths in one batch are settled one by one.
    """

    original: int
    """Tokens up to which the rule is the same: the trained length."""

    @abstractmethod
    def at(self, tokens: int) -> FrequencyRule:
        """The rule for a text of at most `tokens` tokens."""


@dataclass(frozen=True)
class Geometric(FrequencyRule):
    """theta_i = base^(-2i/dim) for i = 0..dim/2-1 (Su et al. 2021, arXiv:2104.09864, section 3.2.2)."""

    base: float = 10_000.0

    def __post_init__(self):
        require_positive("Geometric", "base", self.base, "radians")

    def inv_freq(self, dim: int) -> np.ndarray:
        require_even("Geometric", "dim", dim)
        return self.base ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)


def require_factor(owner: str, factor: float) -> None:
    """Refuses a factor below 1: the new length over the trained one."""
    require_positive(owner, "factor", factor, "trained lengths")
    if factor < 1:
        raise UsageError(
            f"The 'factor' of {owner} is the new length over the trained one, so it is at least 1, got {factor}. "
            f"{1 / factor:g} makes the text that many times as long."
        )
