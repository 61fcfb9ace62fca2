"""From a plan to what the kernel reads: a table of scores by column minus row, and the columns that each row sees."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthen.core import Coordinates, Layout, Needs, Pattern, Plan, ScoreTerm, Warp

_LOG2E = math.log2(math.e)
_BEYOND = 16
"""Entries of psi past its end: the kernel reads whole vectors."""


@dataclass(frozen=True)
class Lowered:
    """One plane of scores for the kernel."""

    table: Tensor | None
    """[H|1, Q + K - 1], nats times log2(e), for row r and column c at c - r + Q - 1; None: no such terms. May require a gradient."""
    warp: tuple[Tensor, ...]
    """Nothing, or psi [Q + K - 1 + 16] laid out as the table, factor [B|1, Q], slopes and offsets [H, S + 1] in base 2; these
    may require gradients. Then the largest score of each head [H], and int32 [B|1, Q, S], the first column below each knot."""
    seen: Tensor
    """int32 [1|B, Q, n, 2], half-open intervals of columns."""


def lower(plan: Plan) -> Lowered | str:
    """The plan for the kernel, or a sentence that says why not. Made once per layout, for all its layers."""
    layout = plan.layout
    seen = layout.remember(("seen columns", plan.pattern), lambda: _seen(layout, plan.pattern))
    if isinstance(seen, str):
        return seen
    if not plan.terms:
        return Lowered(None, (), seen)
    warped = [t for t in plan.terms if t.needs == Needs.WARPED]
    if len(warped) > 1 or (warped and not plan.pattern.causal):
        return "The native backend takes one warped term, under a causal pattern. Use the sdpa or the blocked backend."
    ramp = layout.remember("ramp", lambda: _ramp(layout))
    if isinstance(ramp, str):
        return ramp
    key = ("slot table", plan.terms, plan.dtype, torch.is_grad_enabled())
    table, warp = layout.remember(key, lambda: _added(plan, ramp))
    return Lowered(table, warp, seen)


@dataclass(frozen=True)
class _Ramp:
    """Every visible pair of row r and column c stands at distance first + step (r - c)."""

    first: float
    step: float


def _added(plan: Plan, ramp: _Ramp) -> tuple[Tensor | None, tuple[Tensor, ...]]:
    """Distances fall from that of the last row and the first column. Computed in float64 and rounded once."""
    queries, keys = plan.q.shape[2], plan.k.shape[2]
    tables = [t for t in plan.terms if t.needs == Needs.DISTANCE]
    with torch.autocast("cpu", enabled=False):
        apart = torch.arange(queries - 1, -keys, -1, dtype=torch.float64)
        distance = ramp.first + ramp.step * apart
        table = (sum(t.at(distance) for t in tables) * _LOG2E).to(plan.dtype).contiguous() if tables else None
        warped = (t for t in plan.terms if t.needs == Needs.WARPED)
        return table, next((_warp(t, apart, ramp, plan) for t in warped), ())


def _warp(term: ScoreTerm, apart: Tensor, ramp: _Ramp, plan: Plan) -> tuple[Tensor, ...]:
    """Knots that no pair reaches are left out. apart: row minus column, falling."""
    made = term.warp(ramp.first + ramp.step * apart, plan.layout.q.pos)
    largest = (made.psi.amax() * made.factor.amax()).detach()
    kept = made.knots[made.knots < largest]
    slopes, offsets = (t[:, : len(kept) + 1] * _LOG2E for t in (made.slopes, made.offsets))
    corners = torch.cat((kept, largest[None]))
    # The largest of a head lies at x = 0 or at a corner.
    top = torch.maximum(offsets[:, 0], (slopes * corners + offsets).amax(1)).detach()
    psi = torch.nn.functional.pad(made.psi, (0, _BEYOND))
    lines = [t.to(plan.dtype).contiguous() for t in (psi, made.factor, slopes, offsets, top)]
    return *lines, _edges(made, kept, apart, ramp)


def _edges(warp: Warp, knots: Tensor, apart: Tensor, ramp: _Ramp) -> Tensor:
    """int32 [B|1, Q, S]: columns before it stand farther than the knot."""
    back = ramp.first + ramp.step * apart >= 0
    away, psi = apart[back].flip(0), warp.psi.detach()[back].flip(0).contiguous()
    at = torch.searchsorted(psi, (knots / warp.factor.detach()[..., None]).contiguous())
    rows = torch.arange(warp.factor.shape[1], dtype=torch.float64)[:, None]
    if not len(away):
        return at.to(torch.int32).contiguous()
    farther = torch.cat((away, away[-1:] + 1))[at]
    return (rows - farther + 1).to(torch.int32).contiguous()


def _ramp(layout: Layout) -> _Ramp | str:
    if layout.stride is not None and layout.stride > 0:
        return _Ramp(float(layout.q.pos[0, 0] - layout.k.pos[0, 0]), layout.stride)
    first = _first_distance(layout)
    return first if isinstance(first, str) else _Ramp(first, 1)


def _first_distance(layout: Layout) -> int | str:
    """F, if every visible pair of row r and column c stands at distance F + r - c."""
    q, k = layout.q, layout.k
    if q.pos.is_floating_point() or k.pos.is_floating_point():
        return (
            "The native backend reads a table of evenly spaced distances, and these positions are not. Use the blocked backend."
        )
    found: set[int] = set()
    for b in range(_rows(q, k)):
        documents = _Documents.of(k, b, k.pos)
        if documents is None:
            return _SKIPS
        at, real = documents.find(q, b)
        own = _of(q.pos, b) - torch.arange(q.tokens) + documents.start[at]
        found.update(own[real].unique().tolist())
    return _SKIPS if len(found) > 1 else next(iter(found), 0)


_SKIPS = "The native backend needs positions that step evenly, by one where there are documents, and these skip. Use the sdpa or the blocked backend."


def _seen(layout: Layout, pattern: Pattern) -> Tensor | str:
    q, k = layout.q, layout.k
    if layout.in_order:
        first = int(k.idx[0, 0])
        seen = pattern.intervals(q.idx[0], first + k.tokens)
        return _unsupported(pattern) if seen is None else _columns(seen[None] - first)
    rows = []
    for b in range(_rows(q, k)):
        documents = _Documents.of(k, b, k.idx)
        if documents is None:
            return "The native backend needs the tokens of a document side by side; padding splits one. Use the sdpa backend."
        # Not `k.tokens`: the cache of a sliding window begins in the middle of the text.
        seen = pattern.intervals(_of(q.idx, b), int(_of(k.idx, b).max()) + 1)
        if seen is None:
            return _unsupported(pattern)
        at, real = documents.find(q, b)
        shifted = seen + documents.start[at][:, None, None]
        inside = torch.minimum(torch.maximum(shifted, documents.first[at][:, None, None]), documents.last[at][:, None, None])
        rows.append(inside * real[:, None, None])
    return _columns(torch.stack(rows))


def _unsupported(pattern: Pattern) -> str:
    return f"The native backend needs patterns of a few intervals per query, and {pattern} is not one. Use the sdpa backend."


def _columns(seen: Tensor) -> Tensor:
    """Empty intervals become (0, 0)."""
    seen = seen.clamp_min(0)
    return (seen * (seen[..., :1] < seen[..., 1:])).to(torch.int32).contiguous()


def _rows(*lines: Coordinates) -> int:
    """Rows of the batch that may differ."""
    return max(len(t) for line in lines for t in (line.idx, line.pos, line.doc, line.valid) if t is not None)


def _of(t: Tensor, b: int) -> Tensor:
    return t[b if len(t) > 1 else 0]


@dataclass(frozen=True)
class _Documents:
    """The documents among the keys of one row of the batch."""

    names: Tensor
    """int64 [N], ascending."""
    start: Tensor
    """int64 [N]: column minus coordinate, the same for all tokens of a document."""
    first: Tensor
    """int64 [N]: its first column."""
    last: Tensor
    """int64 [N]: the column after its last."""

    @staticmethod
    def of(k: Coordinates, b: int, coordinate: Tensor) -> "_Documents | None":
        """None where a document is in pieces, or `coordinate` (`k.idx` or `k.pos`) does not step by one with its columns."""
        column = torch.arange(k.tokens)
        doc = torch.zeros_like(column) if k.doc is None else _of(k.doc, b)
        if k.valid is not None:
            kept = _of(k.valid, b)
            column, doc = column[kept], doc[kept]
        if not len(column):
            return _Documents(*torch.zeros(4, 1, dtype=torch.long))
        names, at = doc.unique(return_inverse=True)
        ends = lambda x, how: x.new_zeros(len(names)).scatter_reduce(0, at, x, how, include_self=False)
        offset = column - _of(coordinate, b)[column]
        start, first, last = ends(offset, "amin"), ends(column, "amin"), ends(column, "amax") + 1
        whole = torch.equal(last - first, at.bincount(minlength=len(names)))
        return _Documents(names, start, first, last) if whole and torch.equal(start, ends(offset, "amax")) else None

    def find(self, q: Coordinates, b: int) -> tuple[Tensor, Tensor]:
        """For each query, where its document stands here, and whether the query is real and has one: int64, bool [Q]."""
        real = torch.ones(q.tokens, dtype=torch.bool) if q.valid is None else _of(q.valid, b)
        doc = torch.zeros(q.tokens, dtype=torch.long) if q.doc is None else _of(q.doc, b).contiguous()
        at = torch.searchsorted(self.names, doc).clamp_max(len(self.names) - 1)
        return at, real & (self.names[at] == doc) & (self.first[at] < self.last[at])
