"""The least that an attention costs: the share of causal attention's scores that its pattern shows."""

import torch
from torch import Tensor

from lengthen.core import Layout, Pattern, visible

_CHUNK = 1024
"""Queries at once where a pattern has no intervals."""


def share(pattern: Pattern, layout: Layout) -> float:
    """Visible (query, key) pairs over those of a causal pattern: 1 for causal attention, about 2 for both directions.

    The time of causal attention times this is the ideal time: every score costs the same floating-point operations.
    """
    i, keys = layout.q.idx[0], layout.k.tokens
    return pairs(pattern, layout) / int((i + 1).clamp(max=keys).sum())


def pairs(pattern: Pattern, layout: Layout) -> int:
    """How many (query, key) pairs the pattern shows on consecutive tokens."""
    found = pattern.intervals(layout.q.idx[0], layout.k.tokens)
    if found is not None:
        return int(_covered(found).sum())
    blocks = (slice(a, a + _CHUNK) for a in range(0, layout.q.tokens, _CHUNK))
    return sum(int(visible(Layout(layout.q.take(b), layout.k), pattern).sum()) for b in blocks)


def _covered(intervals: Tensor) -> Tensor:
    """int64 [Q, n, 2], which may overlap -> keys in their union, [Q]."""
    order = intervals[..., 0].argsort(dim=1)
    start, stop = (intervals[..., end].gather(1, order) for end in (0, 1))
    reached = torch.cummax(stop, dim=1).values
    before = torch.cat((torch.zeros_like(reached[:, :1]), reached[:, :-1]), dim=1)
    return (stop - torch.maximum(start, before)).clamp_min(0).sum(1)
