"""NTK-aware scaling (bloc97 2023; Peng et al. 2023, arXiv:2309.00071, definition 1) and NTK-mixed (Su 2023, kexue.fm/9706)."""

from dataclasses import dataclass

import numpy as np

from lengthen.core import FrequencyRule, Geometric, Scheme, UsageError, method
from lengthen.core.errors import require_positive
from lengthen.core.frequency import require_factor

from .rope import rotary_scheme


@dataclass(frozen=True)
class NTKAware(FrequencyRule):
    """RoPE of the base b * s^(R/(R-2)): the highest frequency stays, the lowest is divided by s, exactly.

    R counts the turned channels, not the head. Frequencies between are divided by less than s, so the length is stretched
    by less than s; s is taken larger than the ratio of the lengths.
    """

    factor: float
    """s."""
    base: float = 10_000.0

    def __post_init__(self):
        require_factor("NTK-aware scaling", self.factor)
        Geometric(self.base)

    def inv_freq(self, dim: int) -> np.ndarray:
        if dim == 2 and self.factor > 1:
            raise UsageError(
                "NTK-aware scaling keeps the highest frequency and divides the lowest, and 2 channels have one frequency. "
                "Turn at least 4 channels, or use pi."
            )
        exponent = dim / (dim - 2) if dim > 2 else 1.0
        return Geometric(self.base * self.factor**exponent).inv_freq(dim)


@dataclass(frozen=True)
class NTKMixed(FrequencyRule):
    """theta_i * exp(-a (i+1)^p) with a = ln s / (R/2)^p: every pair is divided, the last by s, exactly.

    A uniform stretch of each digit of the base-b position is p = 1. The post has p = 0.625, its author's code 0.75.
    """

    factor: float
    """s."""
    base: float = 10_000.0
    power: float = 0.625

    def __post_init__(self):
        require_factor("NTK-mixed", self.factor)
        require_positive("NTK-mixed", "power", self.power, "powers of the pair")
        Geometric(self.base)

    def inv_freq(self, dim: int) -> np.ndarray:
        theta = Geometric(self.base).inv_freq(dim)
        share = (np.arange(1, dim // 2 + 1) / (dim // 2)) ** self.power
        return theta * np.exp(-np.log(self.factor) * share)


@method("ntk", family="rescaling", paper="2309.00071", variants=({"factor": 1.0}, {"fraction": 0.5, "interleaved": False}))
def ntk(
    head_size: int, *, factor: float = 4.0, base: float = 10_000.0, fraction: float = 1.0, interleaved: bool = True
) -> Scheme:
    """RoPE with a larger base, so that high frequencies hardly change and the lowest is divided by the factor.

    factor: what the lowest frequency is divided by; somewhat more than the new length over the trained one.
    base: before scaling, radians per token.
    fraction: share of each head that is turned.
    interleaved: pair channels (2i, 2i+1), or (i, i+R/2) as Hugging Face.
    """
    return rotary_scheme(NTKAware(factor, base), head_size, fraction, interleaved)


@method("ntk_mixed", family="rescaling", paper=None, variants=({"power": 0.75, "factor": 12.0},))
def ntk_mixed(
    head_size: int,
    *,
    factor: float = 4.0,
    power: float = 0.625,
    base: float = 10_000.0,
    fraction: float = 1.0,
    interleaved: bool = True,
) -> Scheme:
    """RoPE with every frequency divided, the highest least and the lowest by the factor.

    The author adds log-n scaling: `ntk_mixed+log_n`.

    factor: what the lowest frequency is divided by.
    power: p in exp(-a (i+1)^p); 0.625 in the post, 0.75 in its author's code.
    base: before scaling, radians per token.
    fraction: share of each head that is turned.
    interleaved: pair channels (2i, 2i+1), or (i, i+R/2) as Hugging Face.
    """
    return rotary_scheme(NTKMixed(factor, base, power), head_size, fraction, interleaved)
