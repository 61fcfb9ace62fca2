"""LongRoPE: a divisor for every pair, found by search (Ding et al. 2024, arXiv:2402.13753)."""

from dataclasses import dataclass
from math import log, sqrt

import numpy as np

from lengthen.core import Adaptive, FrequencyRule, Geometric, Scheme, UsageError, method
from lengthen.core.errors import require_count, require_positive
from lengthen.core.frequency import require_factor

from .ntk_by_parts import pair_range, ramp
from .rope import rotary_scheme, rotary_size

Factors = tuple[float, ...]
"""One divisor per pair, highest frequency first."""


@dataclass(frozen=True)
class Divided(FrequencyRule):
    """theta_i / lambda_i with lambda written down."""

    factors: Factors
    base: float = 10_000.0
    mscale: float = 1.0

    def __post_init__(self):
        Geometric(self.base)
        require_positive("LongRoPE", "mscale", self.mscale, "times")
        for value in self.factors:
            require_positive("LongRoPE", "factors", value, "wavelengths")

    def inv_freq(self, dim: int) -> np.ndarray:
        if 2 * len(self.factors) != dim:
            raise UsageError(
                f"LongRoPE divides each pair by a factor of its own; {dim} turned channels are {dim // 2} pairs, "
                f"got {len(self.factors)} factors."
            )
        return Geometric(self.base).inv_freq(dim) / np.array(self.factors, dtype=np.float64)


@dataclass(frozen=True)
class LongRoPE(Adaptive):
    """One set of divisors up to the trained length, another beyond it; the attention factor holds for both.

    Decided by the length of the text, once. A cache filled under one set is wrong under the other.
    """

    short: Factors
    long: Factors
    original: int
    """L0, the trained length in tokens."""
    base: float = 10_000.0
    mscale: float = 1.0

    def __post_init__(self):
        require_count("LongRoPE", "original", self.original, "tokens")
        if len(self.short) != len(self.long):
            raise UsageError(
                f"LongRoPE has {len(self.short)} short factors and {len(self.long)} long ones; give one each a pair."
            )

    def at(self, tokens: int) -> Divided:
        require_count("LongRoPE", "tokens", tokens, "tokens")
        return Divided(self.long if tokens > self.original else self.short, self.base, self.mscale)


def attention_factor_of(factor: float, original: int) -> float:
    """sqrt(1 + ln s / ln L0), and 1 for s <= 1: multiplies queries and keys alike (released code, and transformers)."""
    require_count("LongRoPE", "original", original, "tokens", least=2)
    return sqrt(1 + log(factor) / log(original)) if factor > 1 else 1.0


def starting_factors(factor: float, original: int, dim: int, base: float) -> Factors:
    """Where the search begins: 1 + (s - 1) share, with the share of YaRN's deployed ramp (released code)."""
    share = ramp(*pair_range(32.0, 1.0, dim, base, original), dim // 2)
    return tuple((1 + (factor - 1) * share).tolist())


@method("longrope", family="rescaling", paper="2402.13753", variants=({"factor": 1.0}, {"fraction": 0.5, "interleaved": False}))
def longrope(
    head_size: int,
    train_length: int,
    *,
    factor: float = 4.0,
    short_factor: Factors | None = None,
    long_factor: Factors | None = None,
    attention_factor: float | None = None,
    base: float = 10_000.0,
    fraction: float = 1.0,
    interleaved: bool = True,
) -> Scheme:
    """RoPE with each frequency divided by a searched factor of its own; another set within the trained length.

    factor: the length that it is settled for, over the trained one; up to 1 the short set is used.
    short_factor: divisors within the trained length; ones by default.
    long_factor: divisors beyond it; by default those that the search begins with, YaRN's ramp over wavelengths.
    attention_factor: multiplies queries and keys alike; sqrt(1 + ln factor / ln trained length) by default.
    base: before dividing, radians per token.
    fraction: share of each head that is turned.
    interleaved: pair channels (2i, 2i+1), or (i, i+R/2) as Hugging Face.
    """
    require_factor("longrope", factor)
    dim = rotary_size(head_size, fraction)
    scale = attention_factor if attention_factor is not None else attention_factor_of(factor, train_length)
    long = long_factor if long_factor is not None else starting_factors(factor, train_length, dim, base)
    short = short_factor if short_factor is not None else (1.0,) * len(long)
    rule = LongRoPE(tuple(short), tuple(long), train_length, base, scale).at(round(factor * train_length))
    return rotary_scheme(rule, head_size, fraction, interleaved)
