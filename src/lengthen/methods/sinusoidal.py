"""Sinusoidal position embedding (Vaswani et al. 2017, arXiv:1706.03762, section 3.5)."""

import numpy as np
import torch
from torch import Tensor

from lengthen.core import Embedding, Geometric, Scheme, UsageError, method
from lengthen.core.errors import require_even, require_positive


def paper_frequencies(width: int, base: float) -> np.ndarray:
    """base^(-2i/C) for i = 0..C/2-1, float64, radians per token."""
    return Geometric(base).inv_freq(width)


def tensor2tensor_frequencies(width: int, base: float) -> np.ndarray:
    """base^(-i/(C/2-1)), so that the last is exactly 1/base; float64, radians per token. A single pair has frequency 1."""
    return base ** (-np.arange(width // 2, dtype=np.float64) / max(width // 2 - 1, 1))


class Sinusoidal(Embedding):
    """x + PE(p), with PE(p) the sines and cosines of p * theta_i, amplitude 1.

    'paper': theta_i = base^(-2i/C), channels sin, cos, sin, cos, ... 'tensor2tensor', which the authors released and
    fairseq and Marian use: theta_i = base^(-i/(C/2-1)), all sines before all cosines. The two are not permutations of
    each other. The paper multiplies token embeddings by sqrt(C) first; that is the model's business, as in `Decoder`.
    """

    def __init__(self, width: int, layout: str = "paper", base: float = 10_000.0):
        super().__init__()
        require_even("Sinusoidal", "width", width)
        require_positive("Sinusoidal", "base", base, "radians")
        rules = {"paper": paper_frequencies, "tensor2tensor": tensor2tensor_frequencies}
        if layout not in rules:
            raise UsageError(f"The 'layout' of sinusoidal must be 'paper' or 'tensor2tensor', got {layout!r}.")
        self.frequencies, self.interleaved = rules[layout](width, base), layout == "paper"

    def at(self, pos: Tensor) -> Tensor:
        """[B|1, T] -> float64 [B|1, T, C]."""
        angle = pos.double()[..., None] * torch.from_numpy(self.frequencies).to(pos.device)
        if self.interleaved:
            return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)
        return torch.cat((angle.sin(), angle.cos()), dim=-1)

    def forward(self, x: Tensor, pos: Tensor) -> Tensor:
        real = torch.promote_types(x.dtype, torch.float32)
        return (x.to(real) + self.at(pos).to(real)).to(x.dtype)


@method("sinusoidal", family="absolute", paper="1706.03762", variants=({"layout": "tensor2tensor"},))
def sinusoidal(width: int, *, layout: str = "paper", base: float = 10_000.0) -> Scheme:
    """Sines and cosines of the position, added to the token embeddings.

    layout: 'paper' (interleaved, exponents 2i/C) or 'tensor2tensor' (sines before cosines, exponents i/(C/2-1)).
    base: the ratio of the longest to the shortest wavelength, about; 10000 in the paper.
    """
    return Scheme(embedding=Sinusoidal(width, layout, base))
