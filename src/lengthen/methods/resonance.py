"""Resonance RoPE: wavelengths of whole numbers of tokens (Wang et al. 2024, arXiv:2403.00071)."""

from dataclasses import dataclass

import numpy as np

from lengthen.core import FrequencyRule, Scheme, method

from .ntk_by_parts import NTKByParts
from .rope import rotary_scheme
from .yarn import YaRN


@dataclass(frozen=True)
class Resonance(FrequencyRule):
    """2 pi / round(2 pi / theta_i) for another rule's theta, so that angles seen in training return exactly.

    A wavelength is at least one token; a frequency of 0 stays 0. Scales of the inner rule are kept.
    """

    rule: FrequencyRule

    def __post_init__(self):
        object.__setattr__(self, "mscale", self.rule.mscale)
        object.__setattr__(self, "head_scale", self.rule.head_scale)

    def inv_freq(self, dim: int) -> np.ndarray:
        theta = self.rule.inv_freq(dim)
        turning = theta > 0
        wavelength = np.maximum(np.rint(2 * np.pi / np.where(turning, theta, 1.0)), 1.0)
        return np.where(turning, 2 * np.pi / wavelength, 0.0)


@method("resonance", family="rescaling", paper="2403.00071", variants=({"factor": 4.0, "fraction": 0.5, "interleaved": False},))
def resonance(
    head_size: int,
    train_length: int,
    *,
    factor: float = 1.0,
    base: float = 10_000.0,
    fraction: float = 1.0,
    interleaved: bool = True,
) -> Scheme:
    """RoPE, or YaRN where the text is longer than the trained length, with wavelengths rounded to whole tokens.

    factor: the new length over the trained one; 1 is Resonance RoPE, more is Resonance YaRN.
    base: before rounding, radians per token.
    fraction: share of each head that is turned.
    interleaved: pair channels (2i, 2i+1), or (i, i+R/2) as Hugging Face.
    """
    rule = YaRN(NTKByParts(factor, train_length, base, ramp="deployed"))
    return rotary_scheme(Resonance(rule), head_size, fraction, interleaved)
