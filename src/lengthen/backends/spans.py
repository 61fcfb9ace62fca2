"""Which intervals of keys a block of queries can see at all, so that the rest is never computed."""

import torch

from lengthen.core import Layout, Pattern
from lengthen.core.patterns import Span
from lengthen.core.plan import visible


def spans(layout: Layout, pattern: Pattern, rows: slice) -> tuple[Span, ...]:
    """Intervals of columns outside which these rows see nothing; sorted, disjoint.

    On consecutive tokens the pattern knows them; elsewhere they are the hull of what documents and padding leave visible.
    """
    if not layout.in_order:
        return _hull(layout, pattern, rows)
    first_query, first_key = int(layout.q.idx[0, 0]), int(layout.k.idx[0, 0])
    shown = pattern.spans(first_query + rows.start, first_query + rows.stop - 1, first_key + layout.k.tokens)
    cut = ((max(start - first_key, 0), stop - first_key) for start, stop in shown)
    return tuple((start, stop) for start, stop in cut if start < stop)


def _hull(layout: Layout, pattern: Pattern, rows: slice) -> tuple[Span, ...]:
    block = Layout(layout.q.take(rows), layout.k)
    columns = torch.nonzero(visible(block, pattern).flatten(0, 2).any(0)).flatten()
    return ((int(columns[0]), int(columns[-1]) + 1),) if len(columns) else ()


def split(spans: tuple[Span, ...], width: int) -> list[Span]:
    """The same intervals in pieces of at most `width` keys."""
    return [(a, min(a + width, stop)) for start, stop in spans for a in range(start, stop, width)]


def rows_of(tokens: int, block: int) -> list[slice]:
    """`tokens` queries in blocks."""
    return [slice(a, min(a + block, tokens)) for a in range(0, tokens, block)]
