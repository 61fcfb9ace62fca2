"""The backend of the fused kernel, its gradients and the merging of branches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lengthen.core import Needs, Plan

from ..channels import side_by_side
from .build import kernel, why_off
from .lower import Lowered, lower

_INTERVALS = 8
"""Most intervals per query; each costs a comparison per row and tile."""


class Native:
    """softmax(scale q k^T + table + warp) v on a CPU, forward and backward, in memory that grows with Q + K.

    Tiles that no row sees are skipped, and so are tiles too faint to matter. With |q|, |k| the largest norms of a tile's
    queries and keys and t its largest entry of the table, no score exceeds scale |q| |k| + t (Cauchy and Schwarz); where
    that lies 30 + log2(K) doublings below the largest score that each row has met (60 for float64), all that is skipped
    weighs less than 2^-30 of the row: below the rounding of float32, as long as no skipped value is more than a million
    times the size of those kept. Under ALiBi the cost becomes nearly linear.

    float16 and bfloat16 are computed in float32. Deterministic for a given number of threads.
    """

    name, serves, value_terms, branches = "native", Needs.WARPED, False, True

    def refusal(self, plan: Plan) -> str | None:
        if plan.q.device.type != "cpu":
            return f"The native backend runs on a CPU, and these tensors are on {plan.q.device.type}."
        if plan.q.shape[-1] != plan.v.shape[-1]:
            return (
                f"The native backend needs values as wide as keys, got {plan.v.shape[-1]} and {plan.q.shape[-1]} channels. "
                "Use the blocked backend."
            )
        # Before lowering: where there is no kernel, no table is to be made for it.
        off = why_off()
        missing = off if off is not None else kernel().reason
        if missing is not None:
            return missing
        for part in plan.branches or (plan,):
            lowered = lower(part)
            if isinstance(lowered, str):
                return lowered
            if lowered.seen.shape[2] > _INTERVALS:
                return (
                    f"The native backend takes at most {_INTERVALS} intervals per query, and this pattern may have "
                    f"{lowered.seen.shape[2]}. Use the sdpa or the blocked backend."
                )
        return None

    def __call__(self, plan: Plan) -> Tensor:
        parts = plan.branches or (plan,)
        lowered = tuple(lower(p) for p in parts)
        read = [
            (part.q, part.k, low.table, *(low.warp[:4] if low.warp else _NO_WARP))
            for part, low in zip(parts, lowered, strict=True)
        ]
        return _Attention.apply(lowered, plan.scale, plan.dtype, plan.v, *chain.from_iterable(read))


@dataclass(frozen=True)
class _Piece:
    """What one call of the kernel reads."""

    q: Tensor
    k: Tensor
    v: Tensor
    table: Tensor | None
    warp: tuple[Tensor, ...]
    seen: Tensor
    scale: float

    def forward(self) -> tuple[Tensor, Tensor]:
        """Output [B, H, Q, D] and log-sum-exp [B, H, Q] in base 2."""
        return torch.ops.lengthen.attention(self.q, self.k, self.v, self.table, self.warp, self.seen, self.scale)

    def backward(self, grad: Tensor, out: Tensor, lse: Tensor, of_table: bool, of_warp: bool) -> tuple:
        """Gradients of q, k, v, table and warp, where `out` and `lse` may be those of several pieces merged."""
        return torch.ops.lengthen.attention_backward(
            grad, self.q, self.k, self.v, out, lse, self.table, self.warp, self.seen, self.scale, of_table, of_warp
        )


_NO_WARP = (None,) * 4
_EACH = 7
"""Tensors of a piece: q, k, table, and psi, factor, slopes and offsets of a warp."""


class _Attention(torch.autograd.Function):
    """One softmax over pieces that see different keys: v, then what each piece reads."""

    @staticmethod
    def forward(ctx, lowered: Sequence[Lowered], scale: float, kind: torch.dtype, v: Tensor, *tensors: Tensor | None) -> Tensor:
        ctx.settings = lowered, scale, kind
        parts = [piece.forward() for piece in _pieces(*ctx.settings, v, tensors)]
        out, lse = parts[0] if len(parts) == 1 else _merge(parts)
        ctx.save_for_backward(v, out, lse, *tensors)
        return out.to(v.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        v, out, lse, *tensors = ctx.saved_tensors
        kind = ctx.settings[-1]
        grad, of_v, of_tensors = side_by_side(grad.to(kind)), None, []
        for i, piece in enumerate(_pieces(*ctx.settings, v, tensors)):
            wanted = ctx.needs_input_grad[4 + _EACH * i :][:_EACH]
            dq, dk, dv, dt, dw = piece.backward(grad, out, lse, wanted[2], any(wanted[3:]))
            of_v = dv if of_v is None else of_v.add_(dv)
            q, k = tensors[_EACH * i], tensors[_EACH * i + 1]
            of_tensors += [dq.to(q.dtype), dk.to(k.dtype), dt if wanted[2] else None, *(dw if dw else _NO_WARP)]
        return None, None, None, of_v.to(v.dtype), *of_tensors


def _pieces(
    lowered: Sequence[Lowered], scale: float, kind: torch.dtype, v: Tensor, tensors: Sequence[Tensor | None]
) -> Iterator[_Piece]:
    v = side_by_side(v.to(kind))
    for i, low in enumerate(lowered):
        q, k, table, *warp = tensors[_EACH * i :][:_EACH]
        lines = (*warp, *low.warp[4:]) if low.warp else ()
        yield _Piece(side_by_side(q.to(kind)), side_by_side(k.to(kind)), v, table, lines, low.seen, scale)


def _merge(parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """sum of 2^(lse_i - lse) out_i, with lse = log2(sum of 2^lse_i); rows that see nothing stay zero."""
    each = torch.stack([lse for _, lse in parts])
    top = each.amax(0)
    finite = top.masked_fill(top == float("-inf"), 0.0)
    weights = torch.exp2(each - finite)
    total = weights.sum(0)
    lse = finite + total.log2()
    shares = weights / total.clamp_min(torch.finfo(total.dtype).tiny)
    out = sum(share[..., None] * out for share, (out, _) in zip(shares, parts, strict=True))
    return out, lse
