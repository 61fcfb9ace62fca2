"""p-RoPE: rotary embedding with its lowest frequencies removed (Barbero et al. 2024, arXiv:2410.06205)."""

from dataclasses import dataclass

import numpy as np

from lengthen.core import FrequencyRule, Geometric, Scheme, UsageError, method
from lengthen.core.errors import require_even

from .rope import Rotary


@dataclass(frozen=True)
class Proportional(FrequencyRule):
    """theta_i = base^(-2i/dim) for the floor(p * dim/2) highest frequencies, 0 for the rest, which then carry no position.

    Not partial rotary: there the exponent runs over the turned channels only and the rest is a contiguous slice; here the
    exponent, and the pairing, run over the whole head (as Gemma and Hugging Face's `proportional`).
    """

    p: float = 0.75
    base: float = 10_000.0

    def __post_init__(self):
        Geometric(self.base)
        if not 0 < self.p <= 1:
            raise UsageError(f"The 'p' of p-RoPE must lie in (0, 1], got {self.p}. 1 is RoPE.")

    def inv_freq(self, dim: int) -> np.ndarray:
        require_even("Proportional", "dim", dim)
        # The small addend keeps a product such as 0.58 * 100 / 2 = 28.999999999999996 from losing a pair.
        kept = int(self.p * dim / 2 + 1e-9)
        if kept == 0:
            raise UsageError(f"p = {self.p} keeps none of the {dim // 2} pairs of a head of {dim}. Use at least {2 / dim:.3g}.")
        theta = Geometric(self.base).inv_freq(dim)
        theta[kept:] = 0.0
        return theta


@method("p_rope", family="rotary", paper="2410.06205", variants=({"p": 0.25},))
def p_rope(head_size: int, *, p: float = 0.75, base: float = 10_000.0) -> Scheme:
    """RoPE that keeps the highest frequencies and frees the lowest pairs from position.

    p: share of the pairs that are turned, highest frequencies first; 0.75 is the paper's best.
    base: of the geometric frequencies base^(-2i/D), radians per token.
    """
    return Scheme(rotation=Rotary(Proportional(p, base), head_size, interleaved=False))
