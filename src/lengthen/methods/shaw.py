"""Shaw: relative position representations (Shaw et al. 2018, arXiv:1803.02155)."""

import torch
from torch import Tensor, nn

from lengthen.core import Everywhere, Needs, Scheme, ScoreTerm, Tile, ValueTerm, method
from lengthen.core.errors import require_count


class _Clipped(nn.Module):
    """A table of 2K + 1 vectors, shared by all heads, looked up at clip(k_pos - q_pos, -K, K) + K.

    Real distances go to the nearest vector. Starts Glorot-uniform, as the released code does.
    """

    def __init__(self, head_size: int, clip: int):
        super().__init__()
        require_count("Shaw", "head_size", head_size, "channels")
        require_count("Shaw", "clip", clip, "tokens")
        self.clip = clip
        self.table = nn.Parameter(nn.init.xavier_uniform_(torch.empty(2 * clip + 1, head_size)))

    def index(self, tile: Tile, heads: Tensor) -> Tensor:
        """int64 [B, H, Q, K], a view of [B|1, 1, Q, K]; batch and heads as in `heads`."""
        index = (-tile.distance).round().clamp(-self.clip, self.clip).long() + self.clip
        return index[:, None].expand(*heads.shape[:2], -1, -1)


class ShawKeys(ScoreTerm):
    """scale * q_i . a^K_r, nats (equation 4), as a gather from the 2K + 1 products of each query: no [Q, K, D] tensor."""

    needs = Needs.CONTENT
    relative = True

    def __init__(self, head_size: int, clip: int = 16):
        super().__init__()
        self.vectors = _Clipped(head_size, clip)

    def forward(self, tile: Tile) -> Tensor:
        products = (tile.q * tile.scale) @ self.vectors.table.to(tile.dtype).T
        return products.gather(-1, self.vectors.index(tile, tile.q))


class ShawValues(ValueTerm):
    """sum_j weight_ij a^V_r (equation 3): the weights are summed per r, then multiply the 2K + 1 vectors."""

    def __init__(self, head_size: int, clip: int = 16):
        super().__init__()
        self.vectors = _Clipped(head_size, clip)

    def forward(self, tile: Tile, weights: Tensor) -> Tensor:
        table = self.vectors.table.to(weights.dtype)
        sums = weights.new_zeros(*weights.shape[:-1], table.shape[0])
        return sums.scatter_add(-1, self.vectors.index(tile, weights), weights) @ table


@method(
    "shaw",
    family="relative",
    paper="1803.02155",
    variants=({"values": False}, {"bidirectional": True}, {"clip": 1}),
)
def shaw(head_size: int, *, clip: int = 16, values: bool = True, bidirectional: bool = False) -> Scheme:
    """A learned vector per clipped distance, added to the keys and to the values.

    clip: distances beyond this many tokens share a vector, on either side.
    values: also add vectors to the values, as the paper does.
    bidirectional: attention in both directions, which the vectors tell apart; the paper's encoder.
    """
    return Scheme(
        terms=[ShawKeys(head_size, clip)],
        value_terms=[ShawValues(head_size, clip)] if values else [],
        pattern=Everywhere() if bidirectional else None,
    )
