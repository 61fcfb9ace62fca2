"""Llama 3.1's scaling of frequencies (Grattafiori et al. 2024, arXiv:2407.21783; meta-llama/llama-models)."""

from dataclasses import dataclass

import numpy as np

from lengthen.core import FrequencyRule, Geometric, Scheme, UsageError, method
from lengthen.core.errors import require_count, require_positive
from lengthen.core.frequency import require_factor

from .ntk_by_parts import blend, kept_by_rotations
from .rope import rotary_scheme


@dataclass(frozen=True)
class Llama3(FrequencyRule):
    """(1 - m) theta_i / s + m theta_i with m = clip((L / lambda_i - low) / (high - low), 0, 1), lambda_i = 2 pi / theta_i.

    L / lambda_i counts the rotations within the trained length: NTK-by-parts' paper ramp with ends 4 and 1, no temperature.
    """

    factor: float
    """s; 8 in Llama 3.1, 32 in Llama 3.2."""
    original: int
    """L, 8192 in Llama 3."""
    base: float = 500_000.0
    low: float = 1.0
    """Rotations up to which a frequency is divided."""
    high: float = 4.0
    """Rotations from which it is kept."""

    def __post_init__(self):
        require_factor("Llama-3 scaling", self.factor)
        require_count("Llama-3 scaling", "original", self.original, "tokens")
        Geometric(self.base)
        for name in ("low", "high"):
            require_positive("Llama-3 scaling", name, getattr(self, name), "rotations")
        if self.high <= self.low:
            raise UsageError(
                f"Llama-3 scaling divides frequencies up to 'low' rotations and keeps them from 'high', so high is above low; "
                f"got {self.high} and {self.low}. Llama 3.1 has 4 and 1."
            )

    def inv_freq(self, dim: int) -> np.ndarray:
        theta = Geometric(self.base).inv_freq(dim)
        kept = kept_by_rotations(theta, self.original, self.low, self.high)
        return blend(theta, theta / self.factor, 1 - kept)


@method("llama3", family="rescaling", paper="2407.21783", variants=({"factor": 1.0}, {"fraction": 0.5, "interleaved": False}))
def llama3(
    head_size: int,
    train_length: int,
    *,
    factor: float = 8.0,
    low: float = 1.0,
    high: float = 4.0,
    base: float = 10_000.0,
    fraction: float = 1.0,
    interleaved: bool = True,
) -> Scheme:
    """RoPE with slow pairs divided by a factor and fast ones kept, by rotations within the trained length.

    factor: what slow frequencies are divided by.
    low: rotations up to which they are divided; low_freq_factor of Hugging Face.
    high: rotations from which they are kept; high_freq_factor.
    base: before scaling, radians per token.
    fraction: share of each head that is turned.
    interleaved: pair channels (2i, 2i+1), or (i, i+R/2) as Hugging Face.
    """
    return rotary_scheme(Llama3(factor, train_length, base, low, high), head_size, fraction, interleaved)
