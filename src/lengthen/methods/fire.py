"""FIRE: functional interpolation for relative positions (Li et al. 2024, arXiv:2310.04418)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthen.core import Scheme, Tile, Warp, WarpedTerm, method
from lengthen.core.errors import require_count, require_positive


class FIRE(WarpedTerm):
    """b_h(i, j) = MLP_h(psi(i - j) / (psi(max(i, L)) + 1e-6)), psi(x) = ln(|c x| + 1), nats.

    i, j are the positions of query and key, from zero. The MLP is 1 -> 32 -> H with ReLU and biases. Learned: the MLP,
    c (from 0.1) and the multiplier of the threshold L = |multiplier * `threshold`| (from 1), as in the paper's listing.
    The normaliser depends on the query's own position: not a function of the distance, and not shift-invariant.
    Computed in float32 or better; the MLP costs 32 numbers per (query, key) of a tile, where it is not lowered to a `Warp`:
    a network of ReLUs with one input is piecewise linear in it.
    """

    def __init__(self, heads: int, threshold: float = 512.0, hidden: int = 32, c: float = 0.1):
        super().__init__()
        require_count("FIRE", "heads", heads, "heads")
        require_count("FIRE", "hidden", hidden, "channels")
        require_positive("FIRE", "threshold", threshold, "tokens")
        require_positive("FIRE", "c", c, "1/tokens")
        self.threshold = float(threshold)
        self.c = nn.Parameter(torch.tensor(float(c)))
        self.multiplier = nn.Parameter(torch.tensor(1.0))
        self.up, self.down = nn.Linear(1, hidden), nn.Linear(hidden, heads)

    def normalised(self, tile: Tile) -> Tensor:
        """What the MLP reads: [B|1, Q, K], from 0 at the query itself towards 1 at position zero."""
        return self._psi(tile.distance) / self._reach(tile.q_pos.to(tile.dtype))[:, :, None]

    def _reach(self, q_pos: Tensor) -> Tensor:
        """psi(max(i, L)) + 1e-6."""
        threshold = (self.multiplier.to(q_pos.dtype) * self.threshold).abs()
        return self._psi(torch.maximum(q_pos, threshold)) + 1e-6

    def _psi(self, steps: Tensor) -> Tensor:
        return torch.log1p((self.c.to(steps.dtype) * steps).abs())

    def forward(self, tile: Tile) -> Tensor:
        with torch.autocast(tile.q_pos.device.type, enabled=False):
            x = self.normalised(tile)[..., None]
            x = F.linear(x, self.up.weight.to(x.dtype), self.up.bias.to(x.dtype)).relu()
            return F.linear(x, self.down.weight.to(x.dtype), self.down.bias.to(x.dtype)).movedim(-1, 1)

    def warp(self, distance: Tensor, q_pos: Tensor) -> Warp:
        """Hidden unit k changes sides at x = -bias / weight; between two knots, the active ones add up to one line."""
        weight, bias, down = (t.double() for t in (self.up.weight[:, 0], self.up.bias, self.down.weight))
        with torch.no_grad():
            crossings = -bias / weight
            knots = crossings[crossings.isfinite() & (crossings > 0)].sort().values
            ends = torch.cat((knots.new_zeros(1), knots, knots[-1:] + 1.0 if len(knots) else knots.new_ones(1)))
            active = (weight * ends[:-1, None].lerp(ends[1:, None], 0.5) + bias > 0).double()
        slopes, offsets = down @ (active * weight).T, down @ (active * bias).T + self.down.bias.double()[:, None]
        return Warp(self._psi(distance), 1 / self._reach(q_pos.double()), knots, slopes, offsets)


@method("fire", family="additive bias", paper="2310.04418")
def fire(heads: int, train_length: int, *, threshold: float | None = None, hidden: int = 32, c: float = 0.1) -> Scheme:
    """A small learned network of the logarithmic distance, relative to the query's own position.

    threshold: initial position below which queries are normalised alike, tokens; None is a quarter of the training
        length, the paper's ratio (512 of 2048).
    hidden: channels of the network.
    c: initial factor inside the logarithm, 1/tokens.
    """
    return Scheme(terms=[FIRE(heads, threshold if threshold is not None else train_length / 4, hidden, c)])
