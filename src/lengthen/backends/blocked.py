"""Attention by tiles with a running softmax: serves every plan, in memory that grows with Q + K."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lengthen.core import Needs, Plan
from lengthen.core.patterns import Span

from .spans import rows_of, spans, split


@dataclass(frozen=True)
class Blocked:
    """softmax(logits) @ v over tiles (Milakov and Gimelshein 2018, arXiv:1805.02867; Rabe and Staats 2021, arXiv:2112.05682).

    Plans whose terms need whole rows get tiles as wide as what the queries can see.
    """

    rows: int = 128
    """Most queries per tile."""
    columns: int = 512
    """Keys per tile, where terms do not need whole rows."""
    scores: int = 1 << 22
    """Most scores per tile over batch and heads; rows are cut down to it."""

    name, serves, value_terms, branches = "blocked", Needs.ROW, True, True

    def refusal(self, plan: Plan) -> str | None:
        return None

    def __call__(self, plan: Plan) -> Tensor:
        weights = [p for t in (*plan.terms, *plan.value_terms) for p in t.parameters()]
        return _Tiled.apply(self, plan, *_tensors(plan), *dict.fromkeys(weights))

    def tiles(self, plan: Plan) -> Iterator[tuple[slice, list[Span]]]:
        """Blocks of queries with the intervals of keys that they can see."""
        whole = plan.needs == Needs.ROW
        width = plan.k.shape[2] if whole else min(self.columns, plan.k.shape[2])
        rows = max(1, min(self.rows, self.scores // (plan.q.shape[0] * plan.q.shape[1] * width)))
        for r in rows_of(plan.q.shape[2], rows):
            seen = spans(plan.layout, plan.pattern, r)
            yield r, [(seen[0][0], seen[-1][1])] if whole and seen else split(seen, width)


class _Tiled(torch.autograd.Function):
    """The tiles, and their recomputation in the backward pass from the output and its log-sum-exp."""

    @staticmethod
    def forward(ctx, blocked: Blocked, plan: Plan, *tensors: Tensor | None) -> Tensor:
        plan = _with(plan, tensors)
        out = plan.q.new_zeros(*plan.q.shape[:3], plan.v.shape[-1], dtype=plan.dtype)
        lse = plan.q.new_zeros(plan.q.shape[:3], dtype=plan.dtype)
        for rows, columns in blocked.tiles(plan):
            if columns:
                out[:, :, rows], lse[:, :, rows] = _softmax(plan, rows, columns)
        ctx.save_for_backward(out, lse, *tensors)
        ctx.blocked, ctx.plan = blocked, _with(plan, [None] * len(tensors))
        return out.to(plan.v.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        out, lse, *tensors = ctx.saved_tensors
        wanted = ctx.needs_input_grad[2:]
        totals = [torch.zeros_like(t, dtype=lse.dtype) if w else None for t, w in zip(tensors, wanted, strict=True)]
        plan, grad = _with(ctx.plan, tensors), grad.to(lse.dtype)
        delta = (grad * out).sum(-1, keepdim=True)
        for rows, columns in ctx.blocked.tiles(plan):
            for span in columns:
                tile = _Tile(plan, tensors, rows, slice(*span))
                tile.add_gradients(grad[:, :, rows], delta[:, :, rows], lse[:, :, rows, None], totals)
        return None, None, *(None if x is None else x.to(t.dtype) for x, t in zip(totals, tensors, strict=True))


def _tensors(plan: Plan) -> list[Tensor | None]:
    """All that a plan computes with; the queries and keys of branches come last."""
    turned = [t for b in plan.branches for t in (b.q, b.k)]
    return [plan.q, plan.k, plan.v, plan.raw_q, plan.raw_k, *plan.q_streams, *plan.k_streams, *turned]


def _with(plan: Plan, tensors: Sequence[Tensor | None]) -> Plan:
    """The plan on other tensors, in the order of `_tensors`; more may follow."""
    q, k, v, raw_q, raw_k, *rest = tensors
    n, m = len(plan.q_streams), len(plan.q_streams) + len(plan.k_streams)
    shared = {"v": v, "raw_q": raw_q, "raw_k": raw_k, "q_streams": tuple(rest[:n]), "k_streams": tuple(rest[n:m])}
    turned = zip(plan.branches, rest[m::2], rest[m + 1 :: 2], strict=False)
    branches = tuple(replace(b, q=own_q, k=own_k, **shared) for b, own_q, own_k in turned)
    return replace(plan, q=q, k=k, branches=branches, **shared)


def _softmax(plan: Plan, rows: slice, columns: list[Span]) -> tuple[Tensor, Tensor]:
    """Output [B, H, rows, D] and log-sum-exp [B, H, rows] of some queries; both zero where nothing is visible."""
    top = torch.full((*plan.q.shape[:2], rows.stop - rows.start, 1), float("-inf"), dtype=plan.dtype, device=plan.q.device)
    total, out = torch.zeros_like(top), torch.zeros_like(top)
    for span in columns:
        part = plan.part(rows, slice(*span))
        scores = part.logits().masked_fill(~part.visible(), float("-inf"))
        best = torch.maximum(top, scores.amax(-1, keepdim=True))
        finite = best.masked_fill(best == float("-inf"), 0.0)
        weights, shrink = scores.sub_(finite).exp_(), (top - finite).exp()
        total = total * shrink + weights.sum(-1, keepdim=True)
        out = out * shrink + part.values(weights)
        top = best
    total = total.masked_fill(total == 0, 1.0)
    return out / total, (finite + total.log()).squeeze(-1)


class _Tile:
    """A rectangle of the plan in the backward pass, cut out of its tensors as leaves of a graph of its own."""

    def __init__(self, plan: Plan, tensors: Sequence[Tensor | None], rows: slice, columns: slice):
        q, k = (slice(None), slice(None), rows), (slice(None), slice(None), columns)
        own = [q, k, k, q, k, *[q[1:]] * len(plan.q_streams), *[k[1:]] * len(plan.k_streams), *[q, k] * len(plan.branches)]
        shared = len(tensors) - len(own)
        self.cuts = [*own, *[...] * shared]
        cut = [None if t is None else t[c].detach() for t, c in zip(tensors, self.cuts, strict=True)]
        # Weights of the terms stay themselves: the terms read them.
        self.leaves = [*cut[: len(cut) - shared], *tensors[len(cut) - shared :]]
        self.plan = plan.part(rows, columns)

    def add_gradients(self, grad: Tensor, delta: Tensor, lse: Tensor, totals: Sequence[Tensor | None]) -> None:
        """With P = exp(logits - lse) and dP from the values: dLogits = P (dP - delta)."""
        wanted = [n for n, total in enumerate(totals) if total is not None]
        leaves = [self.leaves[n].requires_grad_() for n in wanted]
        plan = _with(self.plan, self.leaves)
        with torch.enable_grad():
            logits = plan.logits()
            p = (logits.detach() - lse).masked_fill(~plan.visible(), float("-inf")).exp().requires_grad_()
            of_p, *parts = torch.autograd.grad(plan.values(p), [p, *leaves], grad, allow_unused=True)
            self._add(wanted, parts, totals)
            if logits.requires_grad:
                of_logits = p.detach() * (of_p - delta)
                self._add(wanted, torch.autograd.grad(logits, leaves, of_logits, allow_unused=True), totals)

    def _add(self, wanted: Sequence[int], parts: Sequence[Tensor | None], totals: Sequence[Tensor | None]) -> None:
        for n, part in zip(wanted, parts, strict=True):
            if part is not None:
                totals[n][self.cuts[n]] += part
