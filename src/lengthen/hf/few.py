"""A few queries against many keys under branches: each branch turns only the keys that it shows.

For decoding. `attend` lowers every branch to a plan of its own with all keys turned, which costs more than the attention
itself where there is one query; here the keys of a window are turned, and those that the cache holds turned are left alone.
"""

import torch
from torch import Tensor

from lengthen.core import Branch, Layout, Scheme
from lengthen.core.patterns import Both
from lengthen.core.plan import visible

from .route import Left

MOST = 16
"""Queries, above which whole plans are the cheaper way."""


def serves(scheme: Scheme, queries: int) -> bool:
    """Whether this way gives what `attend` gives."""
    plain = scheme.temperature is None and not scheme.terms and not scheme.value_terms and scheme.rotation is not None
    return queries <= MOST and len(scheme.branches) > 0 and plain and scheme.rotation.reach is None


def attend_few(scheme: Scheme, q: Tensor, k: Tensor, v: Tensor, layout: Layout, scale: float, keys_turned: bool) -> Tensor:
    """[B, H, Q, D] over keys and values [B, G, K, D] -> [B, H, Q, D]; scores in float32 at least, all in one softmax."""
    real = torch.promote_types(q.dtype, torch.float32)
    scores = q.new_full((*q.shape[:3], k.shape[2]), float("-inf"), dtype=real)
    with torch.autocast(q.device.type, enabled=False):
        for branch in scheme.branches:
            for part in _columns(branch, layout):
                shown = layout.remember(
                    ("few shown", branch, part.start), lambda b=branch, p=part: _shown(scheme, b, layout, p)
                )
                found = _scores(scheme, branch, q, k[:, :, part], layout, part, keys_turned).to(real) * scale
                scores[..., part] = torch.where(shown, found, scores[..., part])
        # A query of padding sees nothing; its answer is never read, and must be a number.
        weights = scores.softmax(-1).nan_to_num(0.0).to(v.dtype)
    return _grouped(weights, v)


def _columns(branch: Branch, layout: Layout) -> list[slice]:
    """Where keys are that the branch may show to any of these queries; their order may start later in rows with padding."""

    def make() -> list[slice]:
        queries, keys = layout.q.idx, layout.k.idx
        seen = queries[queries >= 0]
        if seen.numel() == 0:
            return []
        spans = branch.region.spans(int(seen.min()), int(seen.max()), int(keys.max()) + 1)
        found = []
        for first, last in spans:
            where = torch.nonzero(((keys >= first) & (keys < last)).any(0)).flatten()
            if where.numel():
                found.append(slice(int(where[0]), int(where[-1]) + 1))
        return found

    return layout.remember(("few columns", branch), make)


def _shown(scheme: Scheme, branch: Branch, layout: Layout, part: slice) -> Tensor:
    return visible(Layout(layout.q, layout.k.take(part)), Both(scheme.pattern, branch.region))


def _scores(scheme: Scheme, branch: Branch, q: Tensor, k: Tensor, layout: Layout, part: slice, keys_turned: bool) -> Tensor:
    """[B, H, Q, n], not scaled."""
    at = branch.layout(layout)
    still = keys_turned or (isinstance(branch.keys, Left) and branch.keys.zero)
    if not still:
        # The part of a branch's layout has a memo of its own, which all layers share.
        k = scheme.turn_keys(k, at.part(slice(None), part))
    q = scheme.turn_queries(q, at)
    rows, heads, queries, size = q.shape
    together = q.reshape(rows, k.shape[1], -1, size) @ k.to(q.dtype).transpose(-1, -2)
    return together.view(rows, heads, queries, -1)


def _grouped(weights: Tensor, v: Tensor) -> Tensor:
    """[B, H, Q, K] @ [B, G, K, D] -> [B, H, Q, D], values not repeated."""
    rows, heads, queries, keys = weights.shape
    return (weights.reshape(rows, v.shape[1], -1, keys) @ v).view(rows, heads, queries, -1)
