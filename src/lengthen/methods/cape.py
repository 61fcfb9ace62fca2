"""CAPE: continuous augmented positional embeddings (Likhomanenko et al. 2021, arXiv:2106.03143). Not DAPE's first title."""

import math

import torch
from torch import Tensor

from lengthen.core import PositionMap, Scheme, UsageError, method

from .sinusoidal import Sinusoidal


class Augment(PositionMap):
    """p -> (p + Delta + eps_p) * lambda while training; p -> p in evaluation.

    Delta ~ U(-shift, shift) and ln lambda ~ U(-ln scale, ln scale) per row, eps_p ~ U(-local, local) per token. Shifts
    in tokens. `local` is at most half the spacing of tokens, so that their order survives. Positions are not centred on
    their mean first, which the method allows: the mean would depend on later tokens.
    """

    def __init__(self, shift: float, local: float, scale: float):
        super().__init__()
        for name, value, least, most in (
            ("shift", shift, 0, math.inf),
            ("local", local, 0, 0.5),
            ("scale", scale, 1, math.inf),
        ):
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not (number and least <= value <= most):
                span = f"between {least} and {most}" if math.isfinite(most) else f"at least {least} and finite"
                raise UsageError(f"The {name!r} of cape must be a number {span}, got {value!r}.")
        self.shift, self.local, self.scale = shift, local, scale

    @property
    def reads_tokens(self) -> bool:
        """Only to learn the number of rows to draw for."""
        return self.training

    def forward(self, idx: Tensor, tokens: Tensor | None = None) -> Tensor:
        if not self.training:
            return idx
        rows = len(idx if tokens is None else tokens)
        moved = idx + _uniform(self.shift, (rows, 1), idx) + _uniform(self.local, (rows, idx.shape[1]), idx)
        return moved * _uniform(math.log(self.scale), (rows, 1), idx).exp()


def _uniform(most: float, size: tuple[int, int], like: Tensor) -> Tensor:
    """U(-most, most), float64, from torch's global generator."""
    return (2 * torch.rand(size, dtype=torch.float64, device=like.device) - 1) * most


@method("cape", family="absolute", paper="2106.03143")
def cape(width: int, *, shift: float = 5.0, local: float = 0.5, scale: float = 1.03, layout: str = "paper") -> Scheme:
    """Sinusoidal embedding whose positions are shifted, jittered and stretched at random while training.

    shift: the largest shift of a row, tokens; drawn from -shift..shift.
    local: the largest jitter of a single token, tokens; at most 0.5, so that order survives.
    scale: the largest stretch of a row, a factor of at least 1; drawn log-uniformly from 1/scale..scale.
    layout: of the sinusoids, 'paper' or 'tensor2tensor'.
    """
    return Scheme(embedding=Sinusoidal(width, layout), embedding_positions=Augment(shift, local, scale))
