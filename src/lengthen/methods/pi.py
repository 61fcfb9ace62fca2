"""PI: position interpolation (Chen et al. 2023, arXiv:2306.15595; kaiokendev 2023)."""

from dataclasses import dataclass

import numpy as np

from lengthen.core import FrequencyRule, Geometric, Scheme, method
from lengthen.core.frequency import require_factor

from .rope import rotary_scheme


@dataclass(frozen=True)
class Interpolated(FrequencyRule):
    """theta_i / s for another rule's theta: positions squeezed s-fold into the trained range (equation 4).

    Dividing frequencies is dividing positions; doing both squeezes twice. Scales of the inner rule are kept.
    """

    factor: float
    """s, the new length over the trained one."""
    rule: FrequencyRule

    def __post_init__(self):
        require_factor("PI", self.factor)
        object.__setattr__(self, "mscale", self.rule.mscale)
        object.__setattr__(self, "head_scale", self.rule.head_scale)

    def inv_freq(self, dim: int) -> np.ndarray:
        return self.rule.inv_freq(dim) / self.factor


@method("pi", family="rescaling", paper="2306.15595", variants=({"factor": 1.0}, {"fraction": 0.5, "interleaved": False}))
def pi(
    head_size: int, *, factor: float = 4.0, base: float = 10_000.0, fraction: float = 1.0, interleaved: bool = True
) -> Scheme:
    """RoPE with all positions squeezed into the trained range: frequencies divided by a factor.

    factor: the new length over the trained one.
    base: of the geometric frequencies, radians per token.
    fraction: share of each head that is turned.
    interleaved: pair channels (2i, 2i+1), or (i, i+R/2) as Hugging Face.
    """
    return rotary_scheme(Interpolated(factor, Geometric(base)), head_size, fraction, interleaved)
