"""Bugs in visibility, temperature, the cache and the backends."""

from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import nn

from lengthen.backends import BACKENDS
from lengthen.core import Cache, Causal, Coordinates, LayerCache, Layout, Needs, Pattern, Scheme, ValueTerm
from lengthen.core.plan import spread
from lengthen.methods.alibi import ALiBi

from .planted import Mutant
from .terms import alibi, buckets


class Relaid(Scheme):
    """A scheme that changes the coordinates before it plans."""

    def side(self, line: Coordinates) -> Coordinates:
        raise NotImplementedError

    def plan(self, q, k, v, layout, **how):
        return super().plan(q, k, v, Layout(self.side(layout.q), self.side(layout.k)), **how)

    def with_pattern(self, pattern):
        return type(self)(positions=self.positions, terms=tuple(self.terms), pattern=pattern)


class IgnoresPadding(Relaid):
    def side(self, line):
        return replace(line, valid=None)


class IgnoresDocuments(Relaid):
    def side(self, line):
        return replace(line, doc=None)


class GapsAreBorders(Relaid):
    """A step other than one in the positions starts a document."""

    def side(self, line):
        jump = F.pad((line.pos.diff(dim=1) != 1).long(), (1, 0)).cumsum(1)
        return replace(line, doc=jump if line.doc is None else line.doc + jump)


class TotalTemperature(Scheme):
    """log(number of keys in the tensor), not of those that the query sees."""

    def plan(self, q, k, v, layout, **how):
        return super().plan(q * torch.tensor(float(k.shape[2])).log(), k, v, layout, **how)


@dataclass(frozen=True)
class Peeking(Pattern):
    """Shows the next token and calls itself causal."""

    causal = True

    def __call__(self, i, j):
        return j <= i + 1


@dataclass(frozen=True)
class Recent(Pattern):
    """The last `tokens` keys."""

    tokens: int = 12
    causal = True

    def __call__(self, i, j):
        return (j <= i) & (i - j < self.tokens)


class Clipped(Recent):
    """Tells backends to skip tiles that are visible."""

    def spans(self, first, last, keys):
        return ((max(0, last + 1 - self.tokens), min(last + 1, keys)),)


class Remembered(ValueTerm):
    """A vector per distance, added to the values."""

    def __init__(self, size: int):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(24, size))

    def forward(self, tile, weights):
        vectors = self.table.to(weights.dtype)[tile.distance.long().clamp(0, 23)]
        return torch.einsum("bhqk,bqkd->bhqd", weights, vectors.expand(len(weights), -1, -1, -1))


class NotLinear(Remembered):
    """Takes the weights of a tile for a whole distribution."""

    def forward(self, tile, weights):
        return super().forward(tile, weights / weights.sum(-1, keepdim=True).clamp_min(1e-30))


def with_values(kind):
    return lambda shape: Scheme(value_terms=[kind(shape.head_size)])


def biased(kind, **stages):
    return lambda shape: kind(terms=[ALiBi(shape.heads)], **stages)


@contextmanager
def newest_first():
    """The cache returns new keys and values before the old ones."""
    append = LayerCache.append

    def wrong(self, k, v):
        new = k.shape[2]
        return tuple(t.roll(new, dims=2) for t in append(self, k, v))

    with patch.object(LayerCache, "append", wrong):
        yield


@contextmanager
def restarts():
    """Each chunk counts from zero."""
    extend = Cache.extend

    def wrong(self, tokens, valid, doc):
        _, keys, every = extend(self, tokens, valid, doc)
        return Coordinates.plain(tokens.shape[1]), keys, every

    with patch.object(Cache, "extend", wrong):
        yield


@contextmanager
def forgets_documents():
    """What follows packed rows without a document falls into the first."""
    with patch.object(Cache, "_last_document", lambda self, tokens: torch.zeros_like(tokens)):
        yield


class Stock:
    """Stock attention with the bias as its mask."""

    name, serves, value_terms = "stock", Needs.CONTENT, False

    def refusal(self, plan):
        return None

    def bias(self, plan):
        return (plan.logits() - (plan.q * plan.scale) @ self.keys(plan).transpose(-1, -2)).masked_fill(
            ~self.shown(plan), -torch.inf
        )

    def keys(self, plan):
        return spread(plan.k, plan.q.shape[1])

    def shown(self, plan):
        return plan.visible()

    def __call__(self, plan):
        v = spread(plan.v, plan.q.shape[1])
        out = F.scaled_dot_product_attention(plan.q, self.keys(plan), v, attn_mask=self.bias(plan), scale=plan.scale)
        return torch.where(self.shown(plan).any(-1, keepdim=True), out, 0.0)


class TopLeft(Stock):
    """`is_causal` of stock attention: the first query sees the first key only, however many keys there are."""

    def shown(self, plan):
        return torch.ones(plan.q.shape[2], plan.k.shape[2], dtype=torch.bool).tril()


class BlindToPadding(Stock):
    def shown(self, plan):
        layout = Layout(replace(plan.layout.q, valid=None), replace(plan.layout.k, valid=None))
        return replace(plan, layout=layout).visible()


class BlindToDocuments(Stock):
    def shown(self, plan):
        layout = Layout(replace(plan.layout.q, doc=None), replace(plan.layout.k, doc=None))
        return replace(plan, layout=layout).visible()


class DetachesBias(Stock):
    def bias(self, plan):
        return super().bias(plan).detach()


class DetachesWeights(Stock):
    """Two halves of the keys merged by log-sum-exp weights that carry no gradient."""

    def __call__(self, plan):
        logits = plan.logits().masked_fill(~plan.visible(), -1e30)
        v, cut = spread(plan.v, plan.q.shape[1]), plan.k.shape[2] // 2
        halves = [(logits[..., :cut], v[:, :, :cut]), (logits[..., cut:], v[:, :, cut:])]
        sizes = torch.stack([s.logsumexp(-1) for s, _ in halves]).detach().softmax(0)[..., None]
        out = sum(w * (s.softmax(-1) @ x) for w, (s, x) in zip(sizes, halves, strict=True))
        return torch.where(plan.visible().any(-1, keepdim=True), out, 0.0)


def served_by(backend):
    return lambda: patch.dict(BACKENDS, {"stock": backend})


def in_backend(name, backend, make=buckets):
    return Mutant(name, "backends", make, make, machinery=served_by(backend), bench=served_by(Stock()))


MUTANTS = (
    Mutant("padding ignored", "left_padding", alibi, biased(IgnoresPadding)),
    Mutant("documents ignored", "packed", alibi, biased(IgnoresDocuments)),
    Mutant("gaps in positions taken for borders", "position_gaps", alibi, biased(GapsAreBorders)),
    Mutant("temperature of all keys", "prefix", alibi, biased(TotalTemperature)),
    Mutant("temperature of all keys", "cached_chunks", alibi, biased(TotalTemperature)),
    Mutant("pattern shows the next token", "prefix", biased(Scheme, pattern=Causal()), biased(Scheme, pattern=Peeking())),
    Mutant("cache in the wrong order", "cached_chunks", alibi, alibi, machinery=newest_first),
    Mutant("cache forgets the document", "packed", alibi, alibi, machinery=forgets_documents),
    Mutant("each chunk counts from zero", "cached_chunks", alibi, alibi, machinery=restarts),
    Mutant(
        "pattern lets visible tiles be skipped", "backends", biased(Scheme, pattern=Recent()), biased(Scheme, pattern=Clipped())
    ),
    Mutant("value term normalises a tile", "backends", with_values(Remembered), with_values(NotLinear)),
    in_backend("is_causal aligned to the top left", TopLeft()),
    in_backend("backend ignores padding", BlindToPadding()),
    in_backend("backend ignores documents", BlindToDocuments()),
    in_backend("backend detaches the bias", DetachesBias()),
    in_backend("merged by weights without gradient", DetachesWeights()),
)
