"""Attention computed from its formula in float64, and small stages for it; shares nothing with plans and backends."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from lengthen.core import Causal, DistanceTerm, Needs, Pattern, ScoreTerm, ValueTerm
from lengthen.core.patterns import interval

NEAR = 4
"""Distances beyond which the learned table is constant, in tokens."""


class Learned(DistanceTerm):
    """A learned score per distance, clipped at NEAR to either side."""

    def __init__(self, heads: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(heads, 2 * NEAR + 1, dtype=torch.float64))

    def at(self, distance: Tensor) -> Tensor:
        return self.table.to(distance.dtype)[:, distance.round().clamp(-NEAR, NEAR).long() + NEAR]


class Slope(DistanceTerm):
    """-slope * log(1 + |d|), smooth and long."""

    def __init__(self, heads: int):
        super().__init__()
        self.slope = nn.Parameter(torch.rand(heads, dtype=torch.float64) + 0.5)

    def at(self, distance: Tensor) -> Tensor:
        return -self.slope.to(distance.dtype).view(-1, *[1] * distance.dim()) * distance.abs().log1p()


class Fixed(DistanceTerm):
    """-|d| / (h + 1), nothing to learn."""

    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads

    def at(self, distance: Tensor) -> Tensor:
        rates = 1 / torch.arange(1, self.heads + 1, dtype=distance.dtype)
        return -rates.view(-1, *[1] * distance.dim()) * distance.abs()


class Absolute(ScoreTerm):
    """weight_h * sin(q_pos) * cos(k_pos): needs both positions."""

    needs = Needs.POSITIONS

    def __init__(self, heads: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(heads, dtype=torch.float64))

    def forward(self, tile) -> Tensor:
        q, k = tile.q_pos.to(tile.dtype).sin(), tile.k_pos.to(tile.dtype).cos()
        return self.weight.to(tile.dtype)[:, None, None] * (q[:, None, :, None] * k[:, None, None, :])


class Content(ScoreTerm):
    """q . table[clipped distance] + k . u: reads queries and keys before they are turned."""

    needs = Needs.CONTENT

    def __init__(self, size: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(2 * NEAR + 1, size, dtype=torch.float64))
        self.u = nn.Parameter(torch.randn(size, dtype=torch.float64))

    def forward(self, tile) -> Tensor:
        rows = self.table.to(tile.dtype)[tile.distance.clamp(-NEAR, NEAR).long() + NEAR]
        return torch.einsum("bhqd,xqkd->bhqk", tile.q, rows) + (tile.k @ self.u.to(tile.dtype))[:, :, None, :]


class Stream(ScoreTerm):
    """weight * (stream at the query - stream at the key)."""

    needs = Needs.CONTENT

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.7, dtype=torch.float64))

    def forward(self, tile) -> Tensor:
        a, b = tile.q_stream.to(tile.dtype), tile.k_stream.to(tile.dtype)
        return self.weight.to(tile.dtype) * (a[:, None, :, None, 0] - b[:, None, None, :, 0])


class Mixing(ScoreTerm):
    """Scores mixed over heads."""

    needs = Needs.SCORES

    def __init__(self, heads: int):
        super().__init__()
        self.mix = nn.Parameter(torch.randn(heads, heads, dtype=torch.float64) / heads)

    def forward(self, tile) -> Tensor:
        return torch.einsum("hg,bgqk->bhqk", self.mix.to(tile.dtype), tile.scores.tanh())


class RowMean(ScoreTerm):
    """weight * the mean of the visible sigmoid(scores) of the query: needs the whole row. Grows with the key's own score."""

    needs = Needs.ROW

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.3, dtype=torch.float64))

    def forward(self, tile) -> Tensor:
        gates = tile.scores.sigmoid() * tile.visible
        return self.weight.to(tile.dtype) * gates * gates.sum(-1, keepdim=True)


class OnValues(ValueTerm):
    """A learned vector per clipped distance, added to each value."""

    def __init__(self, size: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(2 * NEAR + 1, size, dtype=torch.float64))

    def forward(self, tile, weights: Tensor) -> Tensor:
        rows = self.table.to(weights.dtype)[tile.distance.clamp(-NEAR, NEAR).long() + NEAR]
        return torch.einsum("bhqk,xqkd->bhqd", weights, rows)


@dataclass(frozen=True)
class Near(Pattern):
    """The last `width` keys, the query included."""

    width: int
    causal = True

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        return (j <= i) & (i - j < self.width)

    def spans(self, first: int, last: int, keys: int):
        return ((max(0, first - self.width + 1), min(last + 1, keys)),)

    def intervals(self, i: Tensor, keys: int) -> Tensor:
        return interval(i - self.width + 1, i + 1, keys)


@dataclass(frozen=True)
class First(Pattern):
    """The first `count` keys."""

    count: int
    relative = False

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        return (j < self.count) & (i == i)

    def spans(self, first: int, last: int, keys: int):
        return ((0, min(self.count, keys)),)

    def intervals(self, i: Tensor, keys: int) -> Tensor:
        return interval(i * 0, i * 0 + self.count, keys)


@dataclass(frozen=True)
class OwnAndPrevious(Pattern):
    """Causal, within the query's block of `size` and the one before."""

    size: int
    relative = False
    causal = True

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        return (j <= i) & (i // self.size - j // self.size <= 1)

    def spans(self, first: int, last: int, keys: int):
        return ((max(0, (first // self.size - 1) * self.size), min(last + 1, keys)),)

    def intervals(self, i: Tensor, keys: int) -> Tensor:
        return interval((i // self.size - 1) * self.size, i + 1, keys)


@dataclass(frozen=True)
class Away(Pattern):
    """Keys at least `gap` before the query: the first queries see nothing."""

    gap: int
    causal = True

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        return i - j >= self.gap

    def intervals(self, i: Tensor, keys: int) -> Tensor:
        return interval(i * 0, i - self.gap + 1, keys)


SHOWN: dict[str, tuple[Pattern, Callable[[int, int], bool]]] = {
    "causal": (Causal(), lambda i, j: j <= i),
    "window 1": (Near(1), lambda i, j: j == i),
    "window 5": (Near(5), lambda i, j: i - 5 < j <= i),
    "blocks": (OwnAndPrevious(7), lambda i, j: j <= i and j >= (i // 7 - 1) * 7),
    "sinks": (Causal() & (Near(6) | First(2)), lambda i, j: j <= i and (i - j < 6 or j < 2)),
    "sparse sinks": (First(2) | Near(3), lambda i, j: j < 2 or i - 3 < j <= i),
    "away": (Away(3), lambda i, j: j <= i - 3),
}
"""Patterns, and what they show in plain Python."""


def mask(shown: Callable[[int, int], bool], i: np.ndarray, j: np.ndarray, q_doc=None, k_doc=None) -> np.ndarray:
    """bool [B, Q, K]; negative order is padding."""
    batch = max(len(i), len(j))
    i, j = np.broadcast_to(i, (batch, i.shape[1])), np.broadcast_to(j, (batch, j.shape[1]))
    out = np.zeros((batch, i.shape[1], j.shape[1]), dtype=bool)
    for b, r, c in np.ndindex(out.shape):
        same = q_doc is None or q_doc[b, r] == k_doc[b, c]
        out[b, r, c] = same and i[b, r] >= 0 and j[b, c] >= 0 and shown(int(i[b, r]), int(j[b, c]))
    return out


def clipped(q_pos: np.ndarray, k_pos: np.ndarray) -> Tensor:
    """Indices [B, Q, K] into tables over clipped distances."""
    distance = np.rint(q_pos[:, :, None] - k_pos[:, None, :]).astype(np.int64)
    return torch.from_numpy(np.clip(distance, -NEAR, NEAR) + NEAR)


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | float, seen: np.ndarray, scale: float) -> Tensor:
    """softmax over the visible keys only, query by query weighted; zero where nothing is visible. [B, H, Q, D], float64."""
    repeat = q.shape[1] // k.shape[1]
    heads = [h // repeat for h in range(q.shape[1])]
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k[:, heads]) * scale + bias
    scores = scores - scores.detach().amax(-1, keepdim=True)
    weights = scores.exp() * torch.from_numpy(seen)[:, None]
    total = weights.sum(-1, keepdim=True)
    return torch.einsum("bhqk,bhkd->bhqd", weights / total.clamp_min(1e-300), v[:, heads])
