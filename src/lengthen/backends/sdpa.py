"""PyTorch's scaled_dot_product_attention, in linear memory wherever scores follow from positions."""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from lengthen.core import Causal, Coordinates, Everywhere, Layout, Needs, Plan

from .additive import Additive, Tiles, masked, scores
from .channels import side_by_side
from .flash import Field, Flash, take
from .leaks import without_leaks
from .slots import slots
from .spans import Block, Spans, union


@dataclass(frozen=True)
class SDPA:
    """Stock attention: no mask where the kernel needs none, one shared mask for short sequences, else blocks."""

    short: int = 512 * 512
    """Most (query, key) pairs for which one mask is built and shared by all layers."""
    rows: int = 1024
    """Most queries per block."""
    masks: int = 1 << 21
    """Most scores of an explicit mask per call, over batch and heads."""

    name, serves, value_terms, branches = "sdpa", Needs.POSITIONS, False, True

    def refusal(self, plan: Plan) -> str | None:
        if plan.q.shape[-1] != plan.v.shape[-1]:
            return (
                f"The sdpa backend needs values as wide as keys, got {plan.v.shape[-1]} and {plan.q.shape[-1]} channels. "
                "Use the blocked backend."
            )
        device = plan.q.device.type
        if device == "cpu":
            return None
        if plan.branches:
            return f"On {device} the sdpa backend cannot merge {len(plan.branches)} branches. Use the blocked backend."
        if _bare(plan) or self._is_short(plan):
            return None
        return (
            f"On {device} the sdpa backend would build a mask of {plan.q.shape[2]} x {plan.k.shape[2]} tokens; "
            f"it stops at {self.short} pairs. Use the flex or the blocked backend."
        )

    def __call__(self, plan: Plan) -> Tensor:
        kind, result = torch.promote_types(plan.q.dtype, plan.v.dtype), plan.v.dtype
        lower = lambda p: replace(p, q=p.q.to(kind), k=p.k.to(kind), v=p.v.to(kind), layout=_order_only(p))
        plan = replace(lower(plan), branches=tuple(map(lower, plan.branches))) if plan.branches else lower(plan)
        # Under autocast, PyTorch would cast masks to bfloat16, which also makes their views dense.
        with torch.autocast(plan.q.device.type, enabled=False):
            on_cpu = plan.q.device.type == "cpu"
            return (without_leaks(self._attend, plan) if on_cpu else _elsewhere(plan)).to(result)

    def _attend(self, plan: Plan) -> Tensor:
        if _bare(plan):
            return _bare_attention(plan)
        alone = plan.q.shape[2] == 1 and not plan.branches
        one = plan.layout.remember(_key("one query", plan), lambda: _one_query(plan)) if alone else None
        if one is not None:
            return _stock(replace(plan, k=take(plan.k, one[0]), v=take(plan.v, one[0])), one[1])
        parts = plan.branches or (plan,)
        added = [_additive(p) for p in parts]
        if plan.branches or any(t.requires_grad for t in added[0].learned):
            return self._blocks(parts, added)
        return _stock(plan, _shared_mask(plan, added[0])) if self._is_short(plan) else self._blocks(parts, added)

    def _is_short(self, plan: Plan) -> bool:
        return plan.q.shape[2] * plan.k.shape[2] <= self.short

    def _blocks(self, parts: tuple[Plan, ...], added: list[Additive]) -> Tensor:
        turned = [side_by_side(t) for p in parts for t in (p.q.flip(2), p.k)]
        learned = [t for a in added for t in a.learned]
        fields = [self._field(p, a) for p, a in zip(parts, added, strict=True)]
        return Flash.apply(fields, parts[0].scale, side_by_side(parts[0].v), *turned, *learned).flip(2)

    def _field(self, plan: Plan, added: Additive) -> Field:
        """Blocks of at most half as many queries as a query sees keys, so that little is computed in vain, within bounds.

        Powers of two, so that blocks of patterns are met where they begin.
        """
        batch = len(plan.q) if len(added.batches) == 1 else 1
        rows = min(self.rows, 1 << (max(64, added.typical // 2).bit_length() - 1))
        return Field(added, rows, max(1, self.masks // (batch * plan.q.shape[1] * rows)))


def _additive(plan: Plan) -> Additive:
    found = slots(plan)
    return found if found is not None else Tiles(plan)


def _order_only(plan: Plan) -> Layout:
    """Without terms, positions have done their work in the rotation: only order is left to see."""
    layout = plan.layout
    if plan.terms or layout.is_run or (layout.q.pos is layout.q.idx and layout.k.pos is layout.k.idx):
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


def _bare_attention(plan: Plan) -> Tensor:
    return _stock(plan, None, causal=isinstance(plan.pattern, Causal) and plan.q.shape[2] > 1)


def _elsewhere(plan: Plan) -> Tensor:
    """Off the CPU: the kernel's own mask, or one explicit mask."""
    if _bare(plan):
        return _bare_attention(plan)
    mask = plan.layout.remember(_key("scores", plan), lambda: scores(plan))
    # Trap: kernels of a GPU refuse a mask that is finer than the queries, or misread it (PyTorch issue 191964).
    return _stock(replace(plan, q=plan.q.to(mask), k=plan.k.to(mask), v=plan.v.to(mask)), mask)


def _key(what: str, plan: Plan) -> tuple:
    return what, plan.terms, plan.pattern, plan.dtype, torch.is_grad_enabled()


def _shared_mask(plan: Plan, added: Additive) -> Tensor | None:
    """[B|1, H|1, Q, K], the same for all layers with these terms and this pattern."""

    def make() -> Tensor | None:
        queries, keys = plan.q.shape[2], plan.k.shape[2]
        found = [added.block(Block(b, slice(0, queries)), (0, keys)) for b in added.batches]
        if all(x is None for x in found):
            return None
        # Rows of the batch that see everything have nothing to add.
        blank = torch.zeros(1, 1, queries, keys, dtype=plan.dtype)
        return torch.cat([blank if x is None else x for x in found]).flip(2)

    return plan.layout.remember(_key("scores", plan), make)


def _one_query(plan: Plan) -> tuple[Spans, Tensor | None] | None:
    """All that a single query sees, and what is added there, for all layers; None: the rows of the batch see other keys."""
    added, block = _additive(plan), Block(slice(None), slice(0, 1))
    spans = union([s for call in added.calls(block, plan.k.shape[2]) for s in call])
    other = len(added.batches) > 1 or not spans or any(t.requires_grad for t in added.learned)
    return None if other else (spans, masked(added, block, spans))


def _stock(plan: Plan, mask: Tensor | None, causal: bool = False) -> Tensor:
    """One call. A single query's heads are folded into rows, so that grouped keys are read once."""
    q, k, v, grouped = plan.q, plan.k, plan.v, plan.q.shape[1] != plan.k.shape[1]
    if not (grouped and q.shape[2] == 1):
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=plan.scale, enable_gqa=grouped)
    if mask is not None:
        mask = mask.expand(-1, q.shape[1], -1, -1).unflatten(1, (k.shape[1], -1)).flatten(2, 3)
    folded = q.unflatten(1, (k.shape[1], -1)).flatten(2, 3)
    return F.scaled_dot_product_attention(folded, k, v, mask, scale=plan.scale).view(q.shape)
