"""The stages that an author of a method writes: each has one abstract method.

Letters: B batch, T tokens, Q queries, K keys, H query heads, G key/value heads, D head size, R rotary size, C width.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor, nn

from .errors import require_even


class Needs(IntEnum):
    """How much of the (query, key) plane a score term must see. A backend says the most that it can show."""

    DISTANCE = 0
    """q_pos - k_pos: ALiBi, T5, KERPLE, Sandwich, TISA."""
    WARPED = 1
    """psi(q_pos - k_pos) times a factor of the query, through a piecewise linear function: FIRE."""
    POSITIONS = 2
    """q_pos and k_pos."""
    CONTENT = 3
    """q, k or a per-token stream: Shaw, Transformer-XL, FoX."""
    SCORES = 4
    """The scores so far, all heads: DAPE."""
    ROW = 5
    """Every visible score of the query: CoPE."""


@dataclass(frozen=True)
class Tile:
    """A rectangle of the (query, key) plane: all that a term may read."""

    q_pos: Tensor
    """int64 or float64 [B|1, Q]."""
    k_pos: Tensor
    """int64 or float64 [B|1, K]."""
    dtype: torch.dtype
    """What to compute in and return: float32, or float64 where the model is float64."""
    scale: float = 1.0
    """What turns q . k into a logit."""
    q: Tensor | None = None
    """[B, H, Q, D], not rotated, not scaled, temperature applied. From Needs.CONTENT up."""
    k: Tensor | None = None
    """[B, H, K, D], not rotated. From Needs.CONTENT up."""
    q_stream: Tensor | None = None
    """[B, Q, S], this term's stream at the queries."""
    k_stream: Tensor | None = None
    """[B, K, S], this term's stream at the keys."""
    scores: Tensor | None = None
    """[B, H, Q, K], nats. From Needs.SCORES up."""
    visible: Tensor | None = None
    """bool [B|1, 1, Q, K]. From Needs.SCORES up."""

    @property
    def distance(self) -> Tensor:
        """q_pos - k_pos, [B|1, Q, K], subtracted exactly and only then converted to `dtype`."""
        return (self.q_pos[:, :, None] - self.k_pos[:, None, :]).to(self.dtype)


class PositionMap(nn.Module, ABC):
    """Order of a token -> what encodings see. A map may draw at random while `self.training`; never otherwise."""

    reads_tokens: bool = False
    """Whether `tokens` is needed; then both arguments hold the whole history, cached tokens included."""

    @abstractmethod
    def forward(self, idx: Tensor, tokens: Tensor | None = None) -> Tensor:
        """int64 [B|1, T], int64 [B, T] -> int64 or float64 [B|1, T]."""


class Embedding(nn.Module, ABC):
    """Position added to (or mixed into) the token embeddings, before the first layer."""

    @abstractmethod
    def forward(self, x: Tensor, pos: Tensor) -> Tensor:
        """[B, T, C], [B|1, T] -> [B, T, C]. Computes the position part in float32 or better."""


class Rotation(nn.Module, ABC):
    """Channel pair i of queries and keys times a complex factor of the position.

    `interleaved` pairs channels (2i, 2i+1), as the RoPE paper and GPT-J; otherwise (i, i + R/2), as GPT-NeoX and
    Hugging Face. Only the first `size` = R channels are turned; the rest pass through untouched.
    """

    causal_only: bool = False
    """Whether the encoding is wrong for keys behind the query (xPos would amplify them)."""
    reach: int | None = None
    """Most positions that the queries of one plan may span; None: any. Plans are cut where it is exceeded."""
    cacheable: bool = True
    """Whether a key's factor is the same for ever, so that keys may be cached turned."""

    def __init__(self, size: int, interleaved: bool):
        super().__init__()
        require_even(type(self).__name__, "size", size)
        self.size, self.interleaved = size, interleaved

    @abstractmethod
    def factors(self, pos: Tensor, centre: Tensor, keys: bool) -> Tensor:
        """float64 [B|1, T], float64 [B|1, 1] -> complex128 [B|1, T, R/2], for keys or for queries.

        `centre` is the largest query position of the plan; an encoding that is relative may measure from it.
        """

    def tables(self, pos: Tensor, centre: Tensor, keys: bool, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """What `turn` reads, rounded once to `dtype` (float32 or float64); made once for all layers."""
        factors = self.factors(pos, centre, keys)[:, None]
        if self.interleaved:
            return (factors.to(torch.complex128 if dtype == torch.float64 else torch.complex64),)
        cos, sin = factors.real.to(dtype), factors.imag.to(dtype)
        return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)

    def turn(self, x: Tensor, tables: tuple[Tensor, ...]) -> Tensor:
        """[B, H, T, D] by `tables` of its tokens; computed in float32 or better, returned in the type of `x`."""
        part = x[..., : self.size].to(torch.promote_types(x.dtype, torch.float32))
        if self.interleaved:
            turned = torch.view_as_real(_as_complex(part) * tables[0]).flatten(-2)
        else:
            cos, sin = tables
            # Two passes over whole rows: on halves, PyTorch's own products take five times as long.
            exchanged = part.unflatten(-1, (2, -1)).flip(-2).flatten(-2)
            turned = torch.addcmul(part * cos, exchanged, sin)
        turned = turned.to(x.dtype)
        return turned if self.size == x.shape[-1] else torch.cat((turned, x[..., self.size :]), dim=-1)


def _as_complex(x: Tensor) -> Tensor:
    """[..., 2n] real -> [..., n] complex, a view wherever the strides allow."""
    if x.storage_offset() % 2 or any(s % 2 for s in x.stride()[:-1]) or x.stride(-1) != 1:
        x = x.contiguous()
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))


class ScoreTerm(nn.Module, ABC):
    """Added to the scores after the scaling. Called on any tile, so it must not care how the plane is cut."""

    needs: Needs = Needs.POSITIONS
    relative: bool = False
    """Whether adding a constant to all positions leaves it unchanged."""

    @abstractmethod
    def forward(self, tile: Tile) -> Tensor:
        """Nats, [B|1, H, Q, K], in `tile.dtype`."""

    def stream(self, x: Tensor, carry: Tensor | None) -> Tensor | None:
        """A value per token, [B, T, C] -> [B, T, S], cached beside the keys; `carry` is its last cached entry [B, 1, S]."""
        return None


class DistanceTerm(ScoreTerm):
    """A score term that is a function of the distance alone: an O(L) table per head for any backend."""

    needs = Needs.DISTANCE
    relative = True

    @abstractmethod
    def at(self, distance: Tensor) -> Tensor:
        """q_pos - k_pos of any shape [...], float32 or float64 -> nats [H, ...], in the same type. Finite everywhere."""

    def forward(self, tile: Tile) -> Tensor:
        return self.at(tile.distance).movedim(0, 1)


@dataclass(frozen=True)
class Warp:
    """b_h(i, j) = slopes[h, s] x + offsets[h, s] with x = psi(i - j) factor(i), s the number of knots below x. Nats.

    Continuous in x, so that knots need no gradient. All float64, on the CPU.
    """

    psi: Tensor
    """[N], at the distances that were asked for; at least 0, and rising with |distance|."""
    factor: Tensor
    """[B|1, Q], positive."""
    knots: Tensor
    """[S], positive and ascending; without a gradient."""
    slopes: Tensor
    """[H, S + 1]."""
    offsets: Tensor
    """[H, S + 1]."""


class WarpedTerm(ScoreTerm):
    """A score term that a fused kernel can compute from O(L) numbers, although it is no function of the distance."""

    needs = Needs.WARPED

    @abstractmethod
    def warp(self, distance: Tensor, q_pos: Tensor) -> Warp:
        """float64 [N], [B|1, Q] -> the same scores as `forward`."""


class ValueTerm(nn.Module, ABC):
    """Added to the output: linear in the attention weights, so that it can be summed tile by tile (Shaw's a^V)."""

    relative: bool = True

    @abstractmethod
    def forward(self, tile: Tile, weights: Tensor) -> Tensor:
        """[B, H, Q, K], not necessarily normalised -> [B, H, Q, D]."""


class Temperature(nn.Module, ABC):
    """Multiplies q . k by a function of the number of keys that the query sees. Score terms are not multiplied."""

    @abstractmethod
    def forward(self, seen: Tensor) -> Tensor:
        """float64 [B|1, Q], at least 1 -> [B|1, H|1, Q]."""
