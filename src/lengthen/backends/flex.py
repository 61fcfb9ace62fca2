"""FlexAttention: one fused kernel for distance biases and block-sparse patterns on a GPU.

Tested as an eager forward on a CPU, where PyTorch has no backward for it; the compiled GPU path was not run.
"""

import warnings
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from lengthen.core import Needs, Plan

_TABLE = 1 << 22
"""Most distances in a table of scores."""


class Flex:
    """Scores of distance terms are gathered from one table per head; pattern, documents and padding skip whole blocks."""

    name, serves, value_terms, branches = "flex", Needs.DISTANCE, False, False

    def refusal(self, plan: Plan) -> str | None:
        learns = any(p.requires_grad for t in plan.terms for p in t.parameters())
        if plan.q.device.type == "cpu" and torch.is_grad_enabled() and (learns or _requires_grad(plan)):
            return "FlexAttention has no backward on a CPU. Use the sdpa or the blocked backend, or torch.no_grad()."
        if plan.q.dtype == torch.float64 and plan.q.device.type != "cpu":
            return "FlexAttention has no float64 kernel on a GPU. Use the blocked or the dense backend."
        if not plan.terms:
            return None
        if plan.layout.q.pos.is_floating_point() or plan.layout.k.pos.is_floating_point():
            return "The flex backend reads a table of whole distances; these positions are not whole. Use the blocked backend."
        low, high = _distances(plan)
        if high - low >= _TABLE:
            return f"The flex backend would tabulate {high - low + 1} distances; it stops at {_TABLE}. Use the blocked backend."
        return None

    def __call__(self, plan: Plan) -> Tensor:
        grouped = plan.q.shape[1] != plan.k.shape[1]
        kernel = _compiled() if plan.q.device.type == "cuda" else flex_attention
        kind = torch.promote_types(plan.q.dtype, plan.v.dtype)
        with torch.autocast(plan.q.device.type, enabled=False), warnings.catch_warnings():
            # Eager FlexAttention warns that it is not fused; on a CPU that is what is asked for.
            warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
            out = kernel(
                plan.q.to(kind),
                plan.k.to(kind),
                plan.v.to(kind),
                score_mod=_score_mod(plan) if plan.terms else None,
                block_mask=_block_mask(plan),
                scale=plan.scale,
                enable_gqa=grouped,
            )
        return out.to(plan.v.dtype)


@cache
def _compiled() -> Callable[..., Tensor]:
    return torch.compile(flex_attention, dynamic=True)


def _requires_grad(plan: Plan) -> bool:
    return plan.q.requires_grad or plan.k.requires_grad or plan.v.requires_grad


def _distances(plan: Plan) -> tuple[int, int]:
    """The smallest and the largest distance, padding included."""
    q, k = plan.layout.q.pos, plan.layout.k.pos
    return plan.layout.remember("distances", lambda: (int(q.min() - k.max()), int(q.max() - k.min())))


def _score_mod(plan: Plan) -> Callable[..., Tensor]:
    low, high = _distances(plan)
    distance = torch.arange(low, high + 1, device=plan.q.device).to(plan.dtype)
    table = sum(term.at(distance) for term in plan.terms)
    q_pos, k_pos = plan.layout.q.pos, plan.layout.k.pos
    q_rows, k_rows = q_pos.shape[0] > 1, k_pos.shape[0] > 1

    def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return s + table[h, q_pos[b * q_rows, i] - k_pos[b * k_rows, j] - low]

    return score


def _block_mask(plan: Plan) -> BlockMask:
    """Shared by the layers of a forward; kept per row of the batch only where rows differ."""
    q, k, pattern = plan.layout.q, plan.layout.k, plan.pattern
    batch = max(c.shape[0] for c in (q.idx, k.idx, q.doc, k.doc, q.valid, k.valid) if c is not None)

    def shown(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        at = lambda x, t: x[b if x.shape[0] > 1 else 0, t]
        result = pattern(at(q.idx, i), at(k.idx, j))
        if k.doc is not None:
            result = result & (at(q.doc, i) == at(k.doc, j))
        for line, t in ((q, i), (k, j)):
            if line.valid is not None:
                result = result & at(line.valid, t)
        return result

    def make() -> BlockMask:
        return create_block_mask(shown, batch if batch > 1 else None, None, q.tokens, k.tokens, device=plan.q.device)

    return plan.layout.remember(("block mask", pattern), make)
