"""Sandwich: what is left of sinusoids when only their inner product counts (Chi et al. 2023, arXiv:2212.10356)."""

import torch
from torch import Tensor

from lengthen.core import DistanceTerm, Everywhere, Scheme, method
from lengthen.core.errors import require_count, require_even


class Sandwich(DistanceTerm):
    """b_h(d) = (sum_{i=1}^{D/2} cos(d * 10000^(-2i/D)) - D/2) / (8h/H), nats, for heads h = 1..H; fixed.

    Two marks of the paper's listing: the sum runs from i = 1 to D/2, not from 0, and the first head is the steepest.
    D is a number of its own, 128 in the paper, not a size of the model. b(0) = 0. Cosines in float64, whatever the model
    is in: at a million tokens a float32 angle is off by 0.03 radians.
    """

    def __init__(self, heads: int, channels: int = 128):
        super().__init__()
        require_count("Sandwich", "heads", heads, "heads")
        require_even("Sandwich", "channels", channels)
        self.divisors = tuple(8 * h / heads for h in range(1, heads + 1))
        self.frequencies = tuple(10_000.0 ** (-2 * i / channels) for i in range(1, channels // 2 + 1))

    def at(self, distance: Tensor) -> Tensor:
        steps = distance.double()
        total = torch.full_like(steps, -len(self.frequencies))
        for frequency in self.frequencies:
            total += (steps * frequency).cos()
        divisors = torch.tensor(self.divisors, dtype=distance.dtype, device=distance.device)
        return total.to(distance.dtype) / divisors.view(-1, *[1] * distance.dim())


@method("sandwich", family="additive bias", paper="2212.10356", variants=({"bidirectional": True},))
def sandwich(heads: int, *, channels: int = 128, bidirectional: bool = False) -> Scheme:
    """A fixed penalty on distance: the inner product of sinusoids, divided per head.

    channels: of the sinusoids, even; not a size of the model.
    bidirectional: attention in both directions, which the bias treats alike.
    """
    return Scheme(terms=[Sandwich(heads, channels)], pattern=Everywhere() if bidirectional else None)
