"""FIRE: functional interpolation for relative positions (Li et al. 2024, arXiv:2310.04418)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthen.core import Needs, Scheme, ScoreTerm, Tile, method
from lengthen.core.errors import require_count, require_positive


class FIRE(ScoreTerm):
    """b_h(i, j) = MLP_h(psi(i - j) / (psi(max(i, L)) + 1e-6)), psi(x) = ln(|c x| + 1), nats.

    i, j are the positions of query and key, from zero. The MLP is 1 -> 32 -> H with ReLU and biases. Learned: the MLP,
    c (from 0.1) and the multiplier of the threshold L = |multiplier * `threshold`| (from 1), as in the paper's listing.
    The normaliser depends on the query's own position: not a function of the distance, and not shift-invariant.
    Computed in float32 or better; the MLP costs 32 numbers per (query, key) of a tile.
    """

    needs = Needs.POSITIONS

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
        threshold = (self.multiplier.to(tile.dtype) * self.threshold).abs()
        reach = torch.maximum(tile.q_pos.to(tile.dtype), threshold)
        return self._psi(tile.distance) / (self._psi(reach)[:, :, None] + 1e-6)

    def _psi(self, steps: Tensor) -> Tensor:
        return torch.log1p((self.c.to(steps.dtype) * steps).abs())

    def forward(self, tile: Tile) -> Tensor:
        with torch.autocast(tile.q_pos.device.type, enabled=False):
            x = self.normalised(tile)[..., None]
            x = F.linear(x, self.up.weight.to(x.dtype), self.up.bias.to(x.dtype)).relu()
            return F.linear(x, self.down.weight.to(x.dtype), self.down.bias.to(x.dtype)).movedim(-1, 1)


@method("fire", family="additive bias", paper="2310.04418")
def fire(heads: int, train_length: int, *, threshold: float | None = None, hidden: int = 32, c: float = 0.1) -> Scheme:
    """A small learned network of the logarithmic distance, relative to the query's own position.

    threshold: initial position below which queries are normalised alike, tokens; None is a quarter of the training
        length, the paper's ratio (512 of 2048).
    hidden: channels of the network.
    c: initial factor inside the logarithm, 1/tokens.
    """
    return Scheme(terms=[FIRE(heads, threshold if threshold is not None else train_length / 4, hidden, c)])
