"""A plan: all that a backend ever sees of a scheme. It holds the one definition of a score."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor

from .layout import Layout
from .patterns import Pattern
from .stages import Needs, ScoreTerm, Tile, ValueTerm


@dataclass(frozen=True)
class Plan:
    """One attention, lowered from a scheme: tensors, and what its terms need. No names of methods."""

    q: Tensor
    """[B, H, Q, D], turned, not scaled, temperature applied."""
    k: Tensor
    """[B, G, K, D], turned."""
    v: Tensor
    """[B, G, K, D]."""
    layout: Layout
    pattern: Pattern
    scale: float
    """What turns q . k into a logit."""
    terms: tuple[ScoreTerm, ...] = ()
    value_terms: tuple[ValueTerm, ...] = ()
    raw_q: Tensor | None = None
    """`q` before it was turned; terms of content read it."""
    raw_k: Tensor | None = None
    q_streams: tuple[Tensor | None, ...] = ()
    k_streams: tuple[Tensor | None, ...] = ()
    branches: tuple["Plan", ...] = ()
    """Plans of disjoint patterns over the same values, which share one softmax. Then `q` and `k` here are not turned."""

    @property
    def needs(self) -> Needs:
        return max((t.needs for t in self.terms), default=Needs.DISTANCE)

    @property
    def dtype(self) -> torch.dtype:
        """What scores are computed in: float32, or float64 where the queries are."""
        return torch.promote_types(self.q.dtype, torch.float32)

    def part(self, rows: slice, columns: slice = slice(None)) -> "Plan":
        """The plan of some queries and some keys."""
        cut = lambda streams, tokens: tuple(None if s is None else s[:, tokens] for s in streams)
        return replace(
            self,
            q=self.q[:, :, rows],
            k=self.k[:, :, columns],
            v=self.v[:, :, columns],
            # Not `layout.part`: a memo of every tile's mask would grow with Q times K.
            layout=Layout(self.layout.q.take(rows), self.layout.k.take(columns)),
            raw_q=None if self.raw_q is None else self.raw_q[:, :, rows],
            raw_k=None if self.raw_k is None else self.raw_k[:, :, columns],
            q_streams=cut(self.q_streams, rows),
            k_streams=cut(self.k_streams, columns),
            branches=tuple(b.part(rows, columns) for b in self.branches),
        )

    def visible(self) -> Tensor:
        """bool [B|1, 1, Q, K]: pattern, documents and padding together."""
        return visible(self.layout, self.pattern)

    def tiles(self) -> Iterator[Tile]:
        """What each score term may read, in order; `scores` is filled in by `logits`."""
        for n, term in enumerate(self.terms):
            yield self._tile(term.needs, n)

    def _tile(self, needs: Needs, stream: int | None = None) -> Tile:
        content = needs >= Needs.CONTENT
        pick = lambda streams: streams[stream] if stream is not None and streams else None
        heads = self.q.shape[1]
        return Tile(
            q_pos=self.layout.q.pos,
            k_pos=self.layout.k.pos,
            dtype=self.dtype,
            scale=self.scale,
            q=(self.q if self.raw_q is None else self.raw_q).to(self.dtype) if content else None,
            k=spread(self.k if self.raw_k is None else self.raw_k, heads).to(self.dtype) if content else None,
            q_stream=pick(self.q_streams),
            k_stream=pick(self.k_streams),
            visible=self.visible() if needs >= Needs.SCORES else None,
        )

    def logits(self) -> Tensor:
        """Scores in nats before the mask, [B, H, Q, K]: scale * q . k + every term. Float32 or better, whatever autocast says.

        With branches, each scores what its own pattern shows.
        """
        if self.branches:
            first, *others = self.branches
            merge = lambda scores, branch: torch.where(branch.visible(), branch.logits(), scores)
            return reduce(merge, others, first.logits())
        with torch.autocast(self.q.device.type, enabled=False):
            q, k = self.q.to(self.dtype), spread(self.k, self.q.shape[1]).to(self.dtype)
            scores = (q * self.scale) @ k.transpose(-1, -2)
            for term, tile in zip(self.terms, self.tiles(), strict=True):
                scores = scores + term(replace(tile, scores=scores) if term.needs >= Needs.SCORES else tile)
            return scores

    def values(self, weights: Tensor) -> Tensor:
        """The output of attention weights [B, H, Q, K], normalised or not: weights @ v + every value term. [B, H, Q, D]."""
        with torch.autocast(self.q.device.type, enabled=False):
            out = weights @ spread(self.v, weights.shape[1]).to(weights.dtype)
            for term in self.value_terms:
                out = out + term(self._tile(Needs.CONTENT), weights)
            return out


def visible(layout: Layout, pattern: Pattern) -> Tensor:
    """bool [B|1, 1, Q, K]: what the pattern shows, within a document, padding excluded."""

    def make() -> Tensor:
        q, k = layout.q, layout.k
        shown = pattern(q.idx[:, :, None], k.idx[:, None, :])
        if k.doc is not None:
            shown = shown & (q.doc[:, :, None] == k.doc[:, None, :])
        if k.valid is not None:
            shown = shown & k.valid[:, None, :]
        if q.valid is not None:
            shown = shown & q.valid[:, :, None]
        return shown[:, None]

    return layout.remember(("visible", pattern), make)


def spread(x: Tensor, heads: int) -> Tensor:
    """Key/value heads [B, G, K, D] repeated to the query heads [B, H, K, D]."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)
