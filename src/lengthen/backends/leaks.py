"""What is not finite and not seen must not be felt: kernels multiply it by a weight of zero, which gives NaN."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from lengthen.core import Plan

_PAIRS = 1 << 22
"""(Query, key) pairs looked at together, over batch and groups."""


def without_leaks(attend: Callable[[Plan], Tensor], plan: Plan) -> Tensor:
    """`attend(plan)`; where its output is not finite, again without the tokens that are not.

    Then queries that see such a key or value, or are such themselves, are NaN, and all others are as if it were not there,
    gradients included. A finite output costs one pass over it.
    """
    out = attend(plan)
    if torch.compiler.is_compiling() or bool(out.detach().sum().isfinite()):
        return out
    keys = _bad(plan.v) | _bad(plan.k)
    queries = _bad(plan.q)
    if not bool(keys.any()) and not bool(queries.any()):
        return out
    clean = replace(_cleaned(plan, queries, keys), branches=tuple(_cleaned(b, queries, keys) for b in plan.branches))
    return _Lost.apply(attend(clean), _reached(plan, queries, keys)[..., None])


class _Lost(torch.autograd.Function):
    """NaN where `lost`; a gradient that arrives there becomes NaN too, but none where none arrives."""

    @staticmethod
    def forward(ctx, x: Tensor, lost: Tensor) -> Tensor:
        ctx.save_for_backward(lost)
        return x.masked_fill(lost, torch.nan)

    @staticmethod
    def backward(ctx, grad: Tensor):
        (lost,) = ctx.saved_tensors
        return grad.masked_fill(lost & (grad != 0), torch.nan), None


def _bad(x: Tensor) -> Tensor:
    """bool [B, H, T]."""
    return ~x.detach().isfinite().all(-1)


def _cleaned(plan: Plan, queries: Tensor, keys: Tensor) -> Plan:
    zeroed = lambda x, bad: x.masked_fill(bad[..., None], 0.0)
    return replace(plan, q=zeroed(plan.q, queries), k=zeroed(plan.k, keys), v=zeroed(plan.v, keys))


def _reached(plan: Plan, queries: Tensor, keys: Tensor) -> Tensor:
    """bool [B, H, Q]: whether a query sees a bad key, or is bad and sees anything."""
    step, found = max(1, _PAIRS // keys.numel()), []
    for a in range(0, plan.q.shape[2], step):
        shown = plan.part(slice(a, a + step)).visible()
        seen = (shown & keys[:, :, None]).any(-1).repeat_interleave(plan.q.shape[1] // keys.shape[1], dim=1)
        found.append(seen | (queries[:, :, a : a + step] & shown.any(-1)))
    return torch.cat(found, dim=2)
