"""TISA: translation-invariant self-attention (Wennberg & Henter 2021, arXiv:2106.01950)."""

import torch
from torch import Tensor, nn

from lengthen.core import DistanceTerm, Everywhere, Scheme, method
from lengthen.core.errors import require_count


class TISA(DistanceTerm):
    """b_h(r) = sum_{s=1}^{S} a_s exp(-|b_s| (r - c_s)^2) with r = k_pos - q_pos, nats: S bumps per head.

    a, nats, and b, 1/tokens^2, start at N(0.1, 0.01^2); the centres c, tokens, at N(0, 5^2). S = 5.

    The released code evaluates entry (row, column) at row - column - 1: mirrored, and off by one, so that a bump centred
    at 0 peaks on the previous token. This is the paper's formula; to port released weights, negate c and subtract 1.
    """

    def __init__(self, heads: int, kernels: int = 5):
        super().__init__()
        require_count("TISA", "heads", heads, "heads")
        require_count("TISA", "kernels", kernels, "kernels")
        self.a = nn.Parameter(0.1 + 0.01 * torch.randn(heads, kernels))
        self.b = nn.Parameter(0.1 + 0.01 * torch.randn(heads, kernels))
        self.c = nn.Parameter(5.0 * torch.randn(heads, kernels))

    def at(self, distance: Tensor) -> Tensor:
        shape = (-1, *[1] * distance.dim())
        kernels = zip(*(x.to(distance.dtype).unbind(1) for x in (self.a, self.b, self.c)), strict=True)
        total = 0.0
        for a, b, c in kernels:
            total = total + a.view(shape) * torch.exp(-b.abs().view(shape) * (-distance - c.view(shape)) ** 2)
        return total


@method("tisa", family="additive bias", paper="2106.01950", variants=({"bidirectional": True},))
def tisa(heads: int, *, kernels: int = 5, bidirectional: bool = False) -> Scheme:
    """A learned sum of Gaussian bumps of the distance, per head.

    kernels: bumps per head.
    bidirectional: attention in both directions, which the bumps tell apart; the paper's setting.
    """
    return Scheme(terms=[TISA(heads, kernels)], pattern=Everywhere() if bidirectional else None)
