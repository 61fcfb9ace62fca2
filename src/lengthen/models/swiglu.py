"""SwiGLU (Shazeer 2020, arXiv:2002.05202), whose two gradients are written side by side instead of joined by a copy."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)); both projections in one product."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(_Gated.apply(self.gate_up(x)))


class _Gated(torch.autograd.Function):
    """silu(gate) * up of [gate, up]: [..., 2n] -> [..., n]."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=-1)
        silu = F.silu(gate)
        ctx.save_for_backward(x, silu)
        return silu * up

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> Tensor:
        x, silu = ctx.saved_tensors
        (gate, up), of_x = x.chunk(2, dim=-1), torch.empty_like(x)
        of_gate, of_up = of_x.chunk(2, dim=-1)
        torch.mul(grad, silu, out=of_up)
        torch.ops.aten.silu_backward.grad_input(grad * up, gate, grad_input=of_gate)
        return of_x
