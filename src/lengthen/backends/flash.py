"""Attention in blocks through PyTorch's fused CPU kernel, with gradients into what is added to the scores."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .additive import Additive, Room, masked
from .spans import Block, Spans, rows_of, split

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
_LOG2E = math.log2(math.e)
_TILE = 1 << 21
"""Scores per tile of the explicit backward, over batch and heads: 8 MiB in float32."""


@dataclass(frozen=True)
class Field:
    """One plane of scores: what is added to them, and how it is cut."""

    added: Additive
    rows: int
    """Queries per block."""
    most: int
    """Keys per call, where added scores take memory."""

    def calls(self, queries: int) -> Iterator[tuple[Block, Spans]]:
        """What each call of the kernel reads."""
        for batch in self.added.batches:
            for rows in rows_of(queries, self.rows):
                block = Block(batch, rows)
                yield from ((block, spans) for spans in self.added.calls(block, self.most))


class Flash(torch.autograd.Function):
    """One softmax over fields that see different keys: v [B, G, K, D], then q [B, H, Q, D] and k of each, then what they learn.

    Queries come with the last first. Memory grows with Q + K. Pieces are merged by log-sum-exp; in the backward pass each
    uses the merged output and log-sum-exp, which is exact. Autograd's own slices would pad every block's key gradients to K
    tokens; here they are added in place. Rows that see nothing give zeros.
    """

    @staticmethod
    def forward(ctx, fields: Sequence[Field], scale: float, v: Tensor, *tensors: Tensor) -> Tensor:
        first = tensors[0]
        lse = first.new_full(first.shape[:3], float("-inf"), dtype=torch.promote_types(first.dtype, torch.float32))
        out = torch.zeros_like(first, dtype=lse.dtype, memory_format=torch.contiguous_format)
        for field, q, k in zip(fields, tensors[::2], tensors[1::2], strict=False):
            room = Room()
            for block, spans in field.calls(q.shape[2]):
                mask, at = masked(field.added, block, spans, room), (block.batch, slice(None), block.rows)
                keys, values = take(k[block.batch], spans), take(v[block.batch], spans)
                part, own = _forward(q[at], keys, values, 0.0, False, attn_mask=mask, scale=scale)
                _merge(out[at], lse[at], part, _blinded(own, mask))
        out, lse = out.to(first.dtype), lse.masked_fill_(lse == float("-inf"), 0.0)
        ctx.save_for_backward(v, out, lse, *tensors)
        ctx.fields, ctx.scale = fields, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        v, out, lse, *tensors = ctx.saved_tensors
        n, wanted = 2 * len(ctx.fields), ctx.needs_input_grad[3:]
        grads = [torch.zeros_like(t, dtype=lse.dtype) for t in tensors]
        of_v, at = torch.zeros_like(v, dtype=lse.dtype), n
        with torch.autocast(v.device.type, enabled=False):
            for i, field in enumerate(ctx.fields):
                learned = slice(at, at := at + len(field.added.learned))
                how = _explicit if any(wanted[learned]) else _fused
                how(
                    field,
                    ctx.scale,
                    *tensors[2 * i : 2 * i + 2],
                    v,
                    out,
                    lse,
                    grad,
                    *grads[2 * i : 2 * i + 2],
                    of_v,
                    grads[learned],
                )
        own = (g.to(t.dtype) if w else None for g, t, w in zip(grads, tensors, wanted, strict=True))
        return None, None, of_v.to(v.dtype), *own


def take(x: Tensor, spans: Spans) -> Tensor:
    """Some of the keys of [B, G, K, D]; a view where they adjoin."""
    parts = [x[:, :, slice(*s)] for s in spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _blinded(lse: Tensor, mask: Tensor | None) -> Tensor:
    """-inf where a row sees none of the keys; the kernel says 0 there. Terms are finite, so any head tells."""
    if mask is None or not bool((lse == 0).any()):
        return lse
    return lse.masked_fill(mask[:, :1].amax(-1) == float("-inf"), float("-inf"))


def _merge(out: Tensor, lse: Tensor, part: Tensor, own: Tensor) -> None:
    """Adds an output and its log-sum-exp to those so far, in place."""
    both = torch.logaddexp(lse, own)
    top = both.masked_fill(both == float("-inf"), 0.0)
    out.mul_((lse - top).exp_()[..., None]).addcmul_(part.to(out.dtype), (own - top).exp_()[..., None])
    lse.copy_(both)


def _fused(field: Field, scale: float, q, k, v, out, lse, grad, dq, dk, dv, into) -> None:
    """Adds the gradients of q, k and v, by the fused kernel."""
    room = Room()
    for block, spans in field.calls(q.shape[2]):
        at, batch = (block.batch, slice(None), block.rows), block.batch
        keys, values, mask = take(k[batch], spans), take(v[batch], spans), masked(field.added, block, spans, room)
        own_q, own_k, own_v = _backward(
            grad[at],
            q[at],
            keys,
            values,
            out[at],
            lse[at],
            0.0,
            False,
            attn_mask=mask,
            scale=scale,
        )
        dq[at] += own_q
        edges = pairwise([0, *torch.tensor([b - a for a, b in spans]).cumsum(0).tolist()])
        for span, inside in zip(spans, edges, strict=True):
            dk[batch, :, slice(*span)] += own_k[:, :, slice(*inside)]
            dv[batch, :, slice(*span)] += own_v[:, :, slice(*inside)]


def _explicit(field: Field, scale: float, q, k, v, out, lse, grad, dq, dk, dv, into) -> None:
    """Adds the gradients of q, k, v and of what the added scores are learned from, by tiles of weights in `lse`'s type.

    exp2 instead of exp, which has a slow path below -87 on CPUs. The queries that share a key are folded into rows.
    """
    kind, (_, heads, queries, size), groups = lse.dtype, q.shape, k.shape[1]
    k, v = k.to(kind).contiguous(), v.to(kind).contiguous()
    fold, room = lambda x: x.reshape(len(x), groups, -1, x.shape[-1]), Room()
    for block, spans in Field(field.added, min(128, queries), k.shape[2]).calls(queries):
        at, batch = (block.batch, slice(None), block.rows), block.batch
        q_block, g_block = fold(q[at].to(kind)), fold(grad[at].to(kind))
        delta = (grad[at].to(kind) * out[at]).sum(-1, keepdim=True)
        for span in split(spans, max(128, _TILE // (len(q_block) * heads * block.height))):
            k_tile, v_tile = k[batch, :, slice(*span)], v[batch, :, slice(*span)]
            tile, mask = (len(q_block), heads, block.height, span[1] - span[0]), field.added.block(block, span, room)
            p = (q_block * (scale * _LOG2E) @ k_tile.mT).view(tile).sub_(lse[at][..., None], alpha=_LOG2E)
            p = (p if mask is None else p.add_(mask, alpha=_LOG2E)).exp2_()
            ds = (g_block @ v_tile.mT).view(tile).sub_(delta).mul_(p)
            dv[batch, :, slice(*span)] += fold(p).mT @ g_block
            dk[batch, :, slice(*span)] += (fold(ds).mT @ q_block).mul_(scale)
            dq[at] += (fold(ds) @ k_tile).view(-1, heads, block.height, size).mul_(scale)
            field.added.collect(block, span, ds, into)
