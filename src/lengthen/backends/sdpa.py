"""PyTorch's scaled_dot_product_attention, in linear memory wherever scores are a function of distance."""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from lengthen.core import Causal, Coordinates, Everywhere, Layout, Needs, Plan

from .additive import Additive, Table, Tiles, Whole, scores
from .channels import side_by_side
from .flash import Flash


@dataclass(frozen=True)
class SDPA:
    """Stock attention: no mask where the kernel needs none, one shared mask for short sequences, else query blocks."""

    short: int = 512 * 512
    """Most (query, key) pairs for which one mask is built and shared by all layers."""
    rows: int = 1024
    """Most queries per block."""
    masks: int = 1 << 24
    """Most scores of an explicit mask per block, over batch and heads."""

    name, serves, value_terms, branches = "sdpa", Needs.POSITIONS, False, False

    def refusal(self, plan: Plan) -> str | None:
        if plan.q.shape[-1] != plan.v.shape[-1]:
            return (
                f"The sdpa backend needs values as wide as keys, got {plan.v.shape[-1]} and {plan.q.shape[-1]} channels. "
                "Use the blocked backend."
            )
        if plan.q.device.type == "cpu" or _bare(plan) or self._is_short(plan):
            return None
        return (
            f"On {plan.q.device.type} the sdpa backend would build a mask of {plan.q.shape[2]} x {plan.k.shape[2]} tokens; "
            f"it stops at {self.short} pairs. Use the flex or the blocked backend."
        )

    def __call__(self, plan: Plan) -> Tensor:
        kind, result = torch.promote_types(plan.q.dtype, plan.v.dtype), plan.v.dtype
        plan = replace(plan, q=plan.q.to(kind), k=plan.k.to(kind), v=plan.v.to(kind), layout=_order_only(plan))
        # Under autocast, PyTorch would cast masks to bfloat16, which also makes their views dense.
        with torch.autocast(plan.q.device.type, enabled=False):
            return self._attend(plan).to(result)

    def _attend(self, plan: Plan) -> Tensor:
        if _bare(plan):
            return _stock(plan, None, causal=isinstance(plan.pattern, Causal) and plan.q.shape[2] > 1)
        if self._is_short(plan):
            mask = _shared_mask(plan)
            if plan.q.device.type != "cpu":
                # Trap: kernels of a GPU refuse a mask that is finer than the queries, or misread it (PyTorch issue 191964).
                return _stock(replace(plan, q=plan.q.to(mask), k=plan.k.to(mask), v=plan.v.to(mask)), mask)
            return self._blocks(plan, Whole(mask)) if mask.requires_grad else _stock(plan, mask)
        on_a_run = plan.layout.is_run and plan.needs == Needs.DISTANCE
        return self._blocks(plan, Table(plan) if on_a_run else Tiles(plan))

    def _is_short(self, plan: Plan) -> bool:
        return plan.q.shape[2] * plan.k.shape[2] <= self.short

    def _blocks(self, plan: Plan, added: Additive) -> Tensor:
        q, k, v = map(side_by_side, (plan.q, plan.k, plan.v))
        q = q.flip(2) if added.flipped else q
        out = Flash.apply(added, plan.scale, self._rows(plan, added), q, k, v, *added.learned)
        return out.flip(2) if added.flipped else out

    def _rows(self, plan: Plan, added: Additive) -> int:
        """Queries per block: half of what a query sees, so that little is computed in vain, within bounds."""
        queries = plan.q.shape[2]
        seen = sum(stop - start for start, stop in added.spans(slice(queries // 2, queries // 2 + 1)))
        rows = min(self.rows, max(64, seen // 2))
        return rows if added.stored else max(1, min(rows, self.masks // (plan.q.shape[0] * plan.q.shape[1] * max(seen, 1))))


def _order_only(plan: Plan) -> Layout:
    """Without terms, positions have done their work in the rotation: only order is left to see."""
    layout = plan.layout
    if plan.terms or (layout.q.pos is layout.q.idx and layout.k.pos is layout.k.idx):
        return layout
    line = lambda c: Coordinates(c.idx, c.idx, c.doc, c.valid)
    return layout.remember("order only", lambda: Layout(line(layout.q), line(layout.k)))


def _bare(plan: Plan) -> bool:
    """Whether the kernel's own causal mask, or none, says it all."""
    layout = plan.layout
    if plan.terms or layout.k.doc is not None or layout.k.valid is not None or layout.q.valid is not None:
        return False
    if isinstance(plan.pattern, Everywhere):
        return True
    if not (isinstance(plan.pattern, Causal) and layout.is_run):
        return False
    queries, keys = layout.q.tokens, layout.k.tokens
    # The kernel aligns its causal mask top-left; a single last query sees everything.
    return (queries == keys and layout.order_shift == 0) or (queries == 1 and layout.order_shift == keys - 1)


def _shared_mask(plan: Plan) -> Tensor:
    """[B|1, H|1, Q, K], the same for all layers with these terms and this pattern."""
    key = ("scores", plan.terms, plan.pattern, plan.dtype, torch.is_grad_enabled())
    return plan.layout.remember(key, lambda: scores(plan))


def _stock(plan: Plan, mask: Tensor | None, causal: bool = False) -> Tensor:
    """One call. A single query's heads are folded into rows, so that grouped keys are read once."""
    q, k, v, grouped = plan.q, plan.k, plan.v, plan.q.shape[1] != plan.k.shape[1]
    if not (grouped and q.shape[2] == 1):
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=plan.scale, enable_gqa=grouped)
    if mask is not None:
        mask = mask.expand(-1, q.shape[1], -1, -1).unflatten(1, (k.shape[1], -1)).flatten(2, 3)
    folded = q.unflatten(1, (k.shape[1], -1)).flatten(2, 3)
    return F.scaled_dot_product_attention(folded, k, v, mask, scale=plan.scale).view(q.shape)
