"""Attention in query blocks through PyTorch's fused CPU kernel, with gradients into what is added to the scores."""

import math
from itertools import pairwise

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lengthen.core.patterns import Span

from .additive import Additive
from .spans import rows_of, split

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
_LOG2E = math.log2(math.e)
_TILE = 1 << 21
"""Scores per tile of the explicit backward, over batch and heads: 8 MiB in float32."""


class Flash(torch.autograd.Function):
    """softmax(scale * q @ k^T + added) @ v for q [B, H, Q, D] and k, v [B, G, K, D], in blocks of `rows` queries.

    Memory grows with Q + K. Autograd's own slices would pad every block's key gradients to K tokens; here they are
    added in place. Rows that see nothing give zeros: the kernel's log-sum-exp is then 0, and exp(-inf - 0) = 0.
    """

    @staticmethod
    def forward(ctx, added: Additive, scale: float, rows: int, q: Tensor, k: Tensor, v: Tensor, *learned: Tensor) -> Tensor:
        out, lse = torch.zeros_like(q), q.new_zeros(q.shape[:3], dtype=torch.promote_types(q.dtype, torch.float32))
        for r in rows_of(q.shape[2], rows):
            spans = added.spans(r)
            if spans:
                mask = _join([added.block(r, s) for s in spans], dim=3)
                out[:, :, r], lse[:, :, r] = _forward(
                    q[:, :, r], _take(k, spans), _take(v, spans), 0.0, False, attn_mask=mask, scale=scale
                )
        ctx.save_for_backward(q, k, v, out, lse, *learned)
        ctx.added, ctx.scale, ctx.rows = added, scale, rows
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        q, k, v, out, lse, *learned = ctx.saved_tensors
        with torch.autocast(q.device.type, enabled=False):
            if any(ctx.needs_input_grad[6:]):
                grads = _explicit(ctx.added, ctx.scale, q, k, v, out, lse, grad, learned)
            else:
                grads = (*_fused(ctx.added, ctx.scale, ctx.rows, q, k, v, out, lse, grad), *[None] * len(learned))
        return None, None, None, *grads


def _take(x: Tensor, spans: tuple[Span, ...]) -> Tensor:
    return _join([x[:, :, slice(*s)] for s in spans], dim=2)


def _join(parts: list[Tensor], dim: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def _fused(added: Additive, scale: float, rows: int, q, k, v, out, lse, grad) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v by the fused kernel."""
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k, dtype=lse.dtype), torch.zeros_like(v, dtype=lse.dtype)
    for r in rows_of(q.shape[2], rows):
        spans = added.spans(r)
        if not spans:
            continue
        mask = _join([added.block(r, s) for s in spans], dim=3)
        keys, values = _take(k, spans), _take(v, spans)
        dq[:, :, r], block_dk, block_dv = _backward(
            grad[:, :, r], q[:, :, r], keys, values, out[:, :, r], lse[:, :, r], 0.0, False, attn_mask=mask, scale=scale
        )
        edges = pairwise([0, *torch.tensor([b - a for a, b in spans]).cumsum(0).tolist()])
        for span, inside in zip(spans, edges, strict=True):
            dk[:, :, slice(*span)] += block_dk[:, :, slice(*inside)]
            dv[:, :, slice(*span)] += block_dv[:, :, slice(*inside)]
    return dq, dk.to(k.dtype), dv.to(v.dtype)


def _explicit(added: Additive, scale: float, q, k, v, out, lse, grad, learned) -> tuple[Tensor, ...]:
    """Gradients of q, k, v and of what the added scores are learned from, by tiles of weights in `lse`'s type.

    exp2 instead of exp, which has a slow path below -87 on CPUs. The queries that share a key are folded into rows.
    """
    kind, (batch, heads, queries, size), groups = lse.dtype, q.shape, k.shape[1]
    fold = lambda x: x.reshape(batch, groups, -1, x.shape[-1])
    k, v = k.to(kind).contiguous(), v.to(kind).contiguous()
    dq, dk, dv = torch.zeros_like(q, dtype=kind), torch.zeros_like(k), torch.zeros_like(v)
    totals = [torch.zeros_like(t, dtype=kind) for t in learned]
    step = min(128, queries)
    for r in rows_of(queries, step):
        q_block, g_block = fold(q[:, :, r].to(kind)), fold(grad[:, :, r].to(kind))
        delta = (grad[:, :, r].to(kind) * out[:, :, r]).sum(-1, keepdim=True)
        for span in split(added.spans(r), max(128, _TILE // (batch * heads * step))):
            k_tile, v_tile = k[:, :, slice(*span)], v[:, :, slice(*span)]
            tile = (batch, heads, r.stop - r.start, span[1] - span[0])
            p = (q_block * (scale * _LOG2E) @ k_tile.mT).view(tile)
            p = p.add_(added.block(r, span), alpha=_LOG2E).sub_(lse[:, :, r, None], alpha=_LOG2E).exp2_()
            ds = (g_block @ v_tile.mT).view(tile).sub_(delta).mul_(p)
            dv[:, :, slice(*span)] += fold(p).mT @ g_block
            dk[:, :, slice(*span)] += fold(ds).mT @ q_block
            dq[:, :, r] += (fold(ds) @ k_tile).view(batch, heads, -1, size)
            added.collect(r, span, ds, totals)
    own = (total.to(t.dtype) for total, t in zip(totals, learned, strict=True))
    return dq.mul_(scale).to(q.dtype), dk.mul_(scale).to(q.dtype), dv.to(q.dtype), *own
