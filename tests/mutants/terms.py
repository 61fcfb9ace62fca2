"""Bugs in score terms."""

import math
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from lengthen.conformance import oracle
from lengthen.core import DistanceTerm, Needs, Scheme, ScoreTerm
from lengthen.methods.alibi import ALiBi

from .planted import Mutant


class Buckets(DistanceTerm):
    """One learned number per head and distance, the last for all beyond: a small relative bias."""

    def __init__(self, heads: int, size: int = 24):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(size, heads))

    def bucket(self, distance):
        return distance.long().clamp(0, len(self.table) - 1)

    def at(self, distance):
        return self.table.to(distance.dtype)[self.bucket(distance)].movedim(-1, 0)


class Forgetting(ScoreTerm):
    """FoX (arXiv:2503.02130): the sum of log forget gates between key and query, from a running sum."""

    needs, relative = Needs.CONTENT, True

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.gate = nn.Linear(width, heads)

    def logs(self, x):
        real = torch.promote_types(x.dtype, torch.float32)
        return F.logsigmoid(F.linear(x.to(real), self.gate.weight.to(real), self.gate.bias.to(real)))

    def stream(self, x, carry):
        summed = self.logs(x).cumsum(1)
        return summed if carry is None else summed + carry

    def forward(self, tile):
        return (tile.q_stream[:, :, None] - tile.k_stream[:, None]).movedim(-1, 1).to(tile.dtype)


class Contextual(ScoreTerm):
    """CoPE (arXiv:2405.18719): counts gates between key and query and looks the count up."""

    needs, relative = Needs.ROW, True

    def __init__(self, head_size: int, size: int = 16):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(head_size, size))

    def gates(self, tile):
        return tile.scores.sigmoid() * tile.visible

    def forward(self, tile):
        count = self.gates(tile).flip(-1).cumsum(-1).flip(-1).clamp(max=self.table.shape[1] - 1)
        levels = tile.q @ self.table.to(tile.dtype)
        low, high = count.floor(), count.ceil()
        share = count - low
        return levels.gather(-1, low.long()) * (1 - share) + levels.gather(-1, high.long()) * share


class NoCarry(Forgetting):
    def stream(self, x, carry):
        return super().stream(x, None)


class Centred(Forgetting):
    def stream(self, x, carry):
        return super().stream(x - x.mean(1, keepdim=True), carry)


class BatchCentred(Forgetting):
    def stream(self, x, carry):
        return super().stream(x - x.mean(0, keepdim=True), carry)


class CountsMasked(Contextual):
    def forward(self, tile):
        return super().forward(replace(tile, visible=torch.ones_like(tile.visible)))


class TileLocal(ALiBi):
    needs = Needs.POSITIONS  # so that its own `forward` is what backends read

    def forward(self, tile):
        local = lambda pos: torch.arange(pos.shape[1], dtype=tile.dtype)[None]
        return super().forward(replace(tile, q_pos=local(tile.q_pos), k_pos=local(tile.k_pos)))


class QueryWindow(ALiBi):
    needs = Needs.POSITIONS  # so that its own `forward` is what backends read

    def forward(self, tile):
        new = tile.q_pos.shape[1]
        square = super().forward(replace(tile, k_pos=tile.q_pos))
        return F.pad(square, (tile.k_pos.shape[1] - new, 0))


class Flipped(ALiBi):
    def at(self, distance):
        return -super().at(distance)


class NearestFirst(ALiBi):
    """Heads in the reverse order: a rule for another checkpoint."""

    def at(self, distance):
        return super().at(distance).flip(0)


class AbsoluteKey(Buckets):
    needs = Needs.POSITIONS  # so that its own `forward` is what backends read

    def forward(self, tile):
        return super().forward(replace(tile, q_pos=torch.zeros_like(tile.q_pos), k_pos=-tile.k_pos))


class Detached(Buckets):
    def at(self, distance):
        return self.table.detach().to(distance.dtype)[self.bucket(distance)].movedim(-1, 0)


class HalfDetached(Buckets):
    def at(self, distance):
        return super().at(distance) + Detached.at(self, distance)


class Modulo(Buckets):
    def bucket(self, distance):
        return distance.abs().long() % len(self.table)


class ClassLevel(Buckets):
    shared = nn.Parameter(torch.zeros(24, 4))

    def __init__(self, heads: int):
        super().__init__(heads)
        if heads == self.shared.shape[1]:
            self.table = self.shared


class Longest(ALiBi):
    """Bias that shrinks with the longest text seen so far, kept in `memo`."""

    def __init__(self, heads: int, memo: dict):
        super().__init__(heads)
        self.memo = memo

    def at(self, distance):
        self.memo["tokens"] = max(self.memo.get("tokens", 0.0), distance.abs().max().item())
        return super().at(distance) / (1 + self.memo["tokens"] / 100)


class Dropped(Buckets):
    def at(self, distance):
        return F.dropout(super().at(distance) + 1, 0.2, training=True)


class Noisy(Buckets):
    def at(self, distance):
        return super().at(distance) + 0.01 * torch.randn(distance.shape)


class Rounded(ALiBi):
    """Positions in bfloat16, always."""

    needs = Needs.POSITIONS  # so that its own `forward` is what backends read

    def kind(self):
        return torch.bfloat16

    def forward(self, tile):
        q_pos, k_pos = (p.to(self.kind()).to(tile.dtype) for p in (tile.q_pos, tile.k_pos))
        return super().forward(replace(tile, q_pos=q_pos, k_pos=k_pos))


class SlopeBuffer(ALiBi):
    """Slopes in a buffer: `.bfloat16()` rounds them."""

    def __init__(self, heads: int):
        super().__init__(heads)
        self.register_buffer("rate", 1.1 * torch.tensor(self.slopes))

    def kind(self):
        return self.rate.dtype

    def at(self, distance):
        return -self.rate.to(distance.dtype).view(-1, *[1] * distance.dim()) * distance.abs()


class RoundedWithModel(SlopeBuffer, Rounded):
    """Positions in the type of the model."""

    def at(self, distance):
        return ALiBi.at(self, distance)


class Keyed(ScoreTerm):
    """A learned key vector per distance (Shaw, arXiv:1803.02155, in small)."""

    needs, relative = Needs.CONTENT, True

    def __init__(self, head_size: int):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(24, head_size))

    def vectors(self, tile):
        return self.table.to(tile.dtype)[tile.distance.long().clamp(0, len(self.table) - 1)]

    def forward(self, tile):
        return tile.scale * (tile.q[..., None, :] * self.vectors(tile)[:, None]).sum(-1)


class RoundedProduct(Keyed):
    """The product in the type of the model."""

    def forward(self, tile):
        kind = self.table.dtype
        return super().forward(tile).to(kind).to(tile.dtype)


class BatchScaled(ALiBi):
    """Distances over the largest position of the batch."""

    needs = Needs.POSITIONS  # so that its own `forward` is what backends read

    def forward(self, tile):
        return super().forward(tile) * 20 / (1 + tile.k_pos.max())


def press(scheme, q, k, i, j):
    """Section 3 of ALiBi for a power of two heads, in nats, beside the scaled product."""
    slopes = np.array([2.0 ** (-8 * (h + 1) / len(q)) for h in range(len(q))])
    return np.einsum("hqd,hkd->hqk", q, k) / math.sqrt(q.shape[-1]) - slopes[:, None, None] * np.abs(i[:, None] - j[None])


def with_term(make):
    return lambda shape: Scheme(terms=[make(shape)])


alibi, buckets = with_term(lambda s: ALiBi(s.heads)), with_term(lambda s: Buckets(s.heads))
keyed = with_term(lambda s: Keyed(s.head_size))
fox, cope = with_term(lambda s: Forgetting(s.width, s.heads)), with_term(lambda s: Contextual(s.head_size))

KEPT: dict = {}
"""Outlives every instance."""

MUTANTS = (
    Mutant("FoX without carry", "cached_chunks", fox, with_term(lambda s: NoCarry(s.width, s.heads))),
    Mutant("gates centred over the whole text", "prefix", fox, with_term(lambda s: Centred(s.width, s.heads))),
    Mutant("gates centred over the batch", "batch_mates", fox, with_term(lambda s: BatchCentred(s.width, s.heads))),
    Mutant("CoPE counts masked keys", "prefix", cope, with_term(lambda s: CountsMasked(s.head_size))),
    Mutant("bias from tile-local indices", "cached_chunks", alibi, with_term(lambda s: TileLocal(s.heads))),
    Mutant("bias from the query window", "cached_chunks", alibi, with_term(lambda s: QueryWindow(s.heads))),
    Mutant("ALiBi sign flipped", oracle(press), alibi, with_term(lambda s: Flipped(s.heads))),
    Mutant("ALiBi heads reversed", oracle(press), alibi, with_term(lambda s: NearestFirst(s.heads))),
    Mutant("buckets of the absolute key index", "shift", buckets, with_term(lambda s: AbsoluteKey(s.heads))),
    Mutant("bias detached", "gradients", buckets, with_term(lambda s: Detached(s.heads))),
    Mutant("bias detached in one of two uses", "gradients", buckets, with_term(lambda s: HalfDetached(s.heads))),
    Mutant("bias table wraps around", "far", buckets, with_term(lambda s: Modulo(s.heads))),
    Mutant("parameter on the class", "independence", buckets, with_term(lambda s: ClassLevel(s.heads))),
    Mutant("longest text kept for all instances", "independence", alibi, with_term(lambda s: Longest(s.heads, KEPT))),
    Mutant("longest text kept between calls", "repeatability", alibi, with_term(lambda s: Longest(s.heads, {}))),
    Mutant("dropout in evaluation", "repeatability", buckets, with_term(lambda s: Dropped(s.heads))),
    Mutant("noise in evaluation", "repeatability", buckets, with_term(lambda s: Noisy(s.heads))),
    Mutant("positions in bfloat16", "shift", alibi, with_term(lambda s: Rounded(s.heads))),
    Mutant("positions in the type of the model", "precision", alibi, with_term(lambda s: RoundedWithModel(s.heads))),
    Mutant("slopes in a buffer", "precision", alibi, with_term(lambda s: SlopeBuffer(s.heads))),
    Mutant("content term rounded with the model", "precision", keyed, with_term(lambda s: RoundedProduct(s.head_size))),
    Mutant("distances over the longest row of the batch", "left_padding", alibi, with_term(lambda s: BatchScaled(s.heads))),
    Mutant("distances over the longest row of the batch", "right_padding", alibi, with_term(lambda s: BatchScaled(s.heads))),
)
