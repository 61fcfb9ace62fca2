"""Transformer-XL: relative position by projected sinusoids and two global biases (Dai et al. 2019, arXiv:1901.02860)."""

import torch
from torch import Tensor, nn

from lengthen.core import Everywhere, Needs, Scheme, ScoreTerm, Tile, method
from lengthen.core.errors import require_count, require_even


class TransformerXL(ScoreTerm):
    """scale * (q_i . W R_d + u . k_j + v . W R_d) with d = q_pos - k_pos, nats: section 3.3, terms (b), (c) and (d).

    R_d = [sin(d w) | cos(d w)], w_f = 10000^(-2f/C), has the width C of the model; W is C -> H D without bias; u and v are
    per head. `clamp_length` holds |d| at that many tokens. Any distance has its R, keys after the query too.

    Where positions are whole and close, W R_d is computed once per distance of the tile and gathered. Elsewhere the sine
    and cosine of a difference are split, so that the score is a product of C channels of the query and C of the key.

    W and R are shared by the layers that share the scheme; the release has a W per layer and shares u and v.
    """

    needs = Needs.CONTENT
    relative = True

    def __init__(self, heads: int, head_size: int, width: int, clamp_length: int | None = None):
        super().__init__()
        require_count("TransformerXL", "heads", heads, "heads")
        require_count("TransformerXL", "head_size", head_size, "channels")
        require_even("TransformerXL", "width", width)
        if clamp_length is not None:
            require_count("TransformerXL", "clamp_length", clamp_length, "tokens")
        self.clamp_length = clamp_length
        self.frequencies = tuple(10_000.0 ** (-2 * f / width) for f in range(width // 2))
        self.w = nn.Parameter(torch.randn(heads, head_size, width) * width**-0.5)
        self.u = nn.Parameter(0.02 * torch.randn(heads, head_size))
        self.v = nn.Parameter(0.02 * torch.randn(heads, head_size))

    def forward(self, tile: Tile) -> Tensor:
        w, u, v = (x.to(tile.dtype) for x in (self.w, self.u, self.v))
        asking = (tile.q + v[:, None]) * tile.scale
        distance = self._clamped(tile.q_pos[:, :, None] - tile.k_pos[:, None, :])
        low, high = distance.amin(), distance.amax()
        if not distance.is_floating_point() and high - low < 2 * (tile.q.shape[2] + tile.k.shape[2]):
            table = w @ self._sinusoids(torch.arange(int(low), int(high) + 1, device=low.device)).T.to(tile.dtype)
            index = (distance - low)[:, None].expand(*tile.q.shape[:2], -1, -1)
            position = (asking @ table).gather(-1, index)
        else:
            position = self._split(asking @ w, tile)
        return position + tile.scale * (tile.k @ u[..., None]).transpose(-1, -2)

    def _clamped(self, distance: Tensor) -> Tensor:
        return distance if self.clamp_length is None else distance.clamp(-self.clamp_length, self.clamp_length)

    def _sinusoids(self, distance: Tensor) -> Tensor:
        """[...] -> R, float64 [..., C]: exact angles, whatever the model is in."""
        frequencies = torch.tensor(self.frequencies, dtype=torch.float64, device=distance.device)
        angle = distance.double()[..., None] * frequencies
        return torch.cat((angle.sin(), angle.cos()), dim=-1)

    def _split(self, asked: Tensor, tile: Tile) -> Tensor:
        """[B, H, Q, C], the channels that meet R_d -> [B, H, Q, K], at positions of any kind."""
        origin = tile.q_pos[:, :1]
        sin_q, cos_q = self._sinusoids(tile.q_pos - origin).to(tile.dtype)[:, None].chunk(2, dim=-1)
        sin_k, cos_k = self._sinusoids(tile.k_pos - origin).to(tile.dtype)[:, None].chunk(2, dim=-1)
        s, c = asked.chunk(2, dim=-1)
        turned = torch.cat((s * sin_q + c * cos_q, c * sin_q - s * cos_q), dim=-1)
        score = turned @ torch.cat((cos_k, sin_k), dim=-1).transpose(-1, -2)
        if self.clamp_length is None:
            return score
        ends = self._sinusoids(torch.tensor([self.clamp_length, -self.clamp_length], device=asked.device)).to(tile.dtype)
        past, future = (asked @ ends.T).split(1, dim=-1)
        distance = tile.distance[:, None]
        score = torch.where(distance > self.clamp_length, past, score)
        return torch.where(distance < -self.clamp_length, future, score)


@method(
    "transformer_xl",
    family="relative",
    paper="1901.02860",
    variants=({"bidirectional": True}, {"clamp_length": 32}),
)
def transformer_xl(
    heads: int, head_size: int, width: int, *, clamp_length: int | None = None, bidirectional: bool = False
) -> Scheme:
    """Queries meet a projected sinusoid of the distance; a global bias per head meets keys and distances.

    clamp_length: distances beyond this many tokens count as it, as `clamp_len` of the release; None: none do.
    bidirectional: attention in both directions; sines tell them apart.
    """
    term = TransformerXL(heads, head_size, width, clamp_length)
    return Scheme(terms=[term], pattern=Everywhere() if bidirectional else None)
