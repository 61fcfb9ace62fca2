"""Which keys a block of queries can see at all, so that the rest is never computed."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthen.core import Layout, Pattern
from lengthen.core.patterns import Span
from lengthen.core.plan import visible

Spans = tuple[Span, ...]
"""Sorted and disjoint."""


@dataclass(frozen=True)
class Block:
    """Some queries of some rows of the batch."""

    batch: slice
    rows: slice

    @property
    def height(self) -> int:
        """Queries."""
        return self.rows.stop - self.rows.start


def spans(layout: Layout, pattern: Pattern, rows: slice) -> Spans:
    """Intervals of columns outside which these rows see nothing; sorted, disjoint.

    On consecutive tokens the pattern knows them; elsewhere they are the hull of what documents and padding leave visible.
    """
    if not layout.in_order:
        return _hull(layout, pattern, rows)
    first_query, first_key = int(layout.q.idx[0, 0]), int(layout.k.idx[0, 0])
    shown = pattern.spans(first_query + rows.start, first_query + rows.stop - 1, first_key + layout.k.tokens)
    cut = ((max(start - first_key, 0), stop - first_key) for start, stop in shown)
    return tuple((start, stop) for start, stop in cut if start < stop)


def _hull(layout: Layout, pattern: Pattern, rows: slice) -> Spans:
    block = Layout(layout.q.take(rows), layout.k)
    columns = torch.nonzero(visible(block, pattern).flatten(0, 2).any(0)).flatten()
    return ((int(columns[0]), int(columns[-1]) + 1),) if len(columns) else ()


def touched(seen: Tensor) -> Spans:
    """Columns that some row may see, of int [Q, n, 2], half-open intervals; empty ones are (0, 0)."""
    found = []
    for interval in seen.unbind(1):
        some = interval[interval[:, 1] > 0]
        if len(some):
            found.append((int(some[:, 0].min()), int(some[:, 1].max())))
    return union(found)


def covered(seen: Tensor) -> Spans:
    """Columns that every row sees, as far as one and the same interval of every row shows it."""
    start, stop = seen[..., 0].amax(0).tolist(), seen[..., 1].amin(0).tolist()
    return union([(a, b) for a, b in zip(start, stop, strict=True) if a < b])


def union(found: list[Span]) -> Spans:
    """Intervals that touch or overlap become one."""
    merged: list[Span] = []
    for start, stop in sorted(found):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return tuple(merged)


def without(spans: Spans, holes: Spans) -> Spans:
    """What `holes`, each inside one of the spans, leave of them."""
    ends = sorted(end for s in (*spans, *holes) for end in s)
    return tuple((a, b) for a, b in zip(ends[::2], ends[1::2], strict=True) if a < b)


def width(spans: Spans) -> int:
    """Columns in all."""
    return sum(stop - start for start, stop in spans)


def split(spans: Spans, most: int) -> list[Span]:
    """The same intervals in pieces of at most `most` keys."""
    return [(a, min(a + most, stop)) for start, stop in spans for a in range(start, stop, most)]


def packed(spans: Spans, most: int) -> list[Spans]:
    """The same intervals in groups of at most `most` keys each."""
    groups: list[Spans] = []
    for span in split(spans, most):
        if groups and width((*groups[-1], span)) <= most:
            groups[-1] = (*groups[-1], span)
        else:
            groups.append((span,))
    return groups


def rows_of(tokens: int, block: int) -> list[slice]:
    """`tokens` queries in blocks."""
    return [slice(a, min(a + block, tokens)) for a in range(0, tokens, block)]
