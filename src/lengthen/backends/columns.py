"""Where queries and keys stand as columns: the intervals that each row sees, and the distance that a column lies away.

Functions return a reason, to be put after "The ... backend", where a layout or a pattern does not have this shape.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthen.core import Coordinates, Layout, Pattern


@dataclass(frozen=True)
class Ramp:
    """Every visible pair of row r and column c stands at distance first + step (r - c)."""

    first: float
    step: float


def ramp(layout: Layout) -> Ramp | str:
    """Made once per layout."""
    return layout.remember("ramp", lambda: _ramp(layout))


def seen_columns(layout: Layout, pattern: Pattern) -> Tensor | str:
    """int32 [1|B, Q, n, 2], half-open intervals of columns; empty ones are (0, 0). Made once per layout and pattern."""
    return layout.remember(("seen columns", pattern), lambda: _seen(layout, pattern))


def _ramp(layout: Layout) -> Ramp | str:
    if layout.stride is not None and layout.stride > 0:
        return Ramp(float(layout.q.pos[0, 0] - layout.k.pos[0, 0]), layout.stride)
    first = _first_distance(layout)
    return first if isinstance(first, str) else Ramp(first, 1)


def _first_distance(layout: Layout) -> int | str:
    """F, if every visible pair of row r and column c stands at distance F + r - c."""
    q, k = layout.q, layout.k
    if q.pos.is_floating_point() or k.pos.is_floating_point():
        return "reads a table of evenly spaced distances, and these positions are not. Use the blocked backend."
    found: set[int] = set()
    for b in range(_rows(q, k)):
        documents = _Documents.of(k, b, k.pos)
        if documents is None:
            return _SKIPS
        at, real = documents.find(q, b)
        own = _of(q.pos, b) - torch.arange(q.tokens) + documents.start[at]
        found.update(own[real].unique().tolist())
    return _SKIPS if len(found) > 1 else next(iter(found), 0)


_SKIPS = (
    "needs positions that step evenly, by one where there are documents, and these skip. Use the sdpa or the blocked backend."
)


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
            return "needs the tokens of a document side by side; padding splits one. Use the sdpa backend."
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
    return f"needs patterns of a few intervals per query, and {pattern} is not one. Use the sdpa backend."


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
