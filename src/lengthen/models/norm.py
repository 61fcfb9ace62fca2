"""RMS normalisation (Zhang and Sennrich 2019, arXiv:1910.07467), with its gradient written by hand for CPUs.

PyTorch composes it of a dozen element-wise operations there, and passes over memory are what a small model waits for.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_EPS = 1e-6
"""Added to the mean square."""


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * gain over the last dimension."""

    def __init__(self, channels: int):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        gain = self.gain.to(x.dtype)
        if x.is_cpu and x.dtype in (torch.float32, torch.float64):
            return _Normed.apply(x, gain)
        return F.rms_norm(x, gain.shape, gain, _EPS)


class _Normed(torch.autograd.Function):
    """With n = x * r and r = (mean(x^2) + eps)^-1/2: dx = r (g gain - n mean(g gain n)), dgain = sum(g n)."""

    @staticmethod
    def forward(ctx, x: Tensor, gain: Tensor) -> Tensor:
        inverse = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(_EPS).rsqrt_()
        normed = x * inverse
        ctx.save_for_backward(normed, inverse, gain)
        return normed * gain

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        normed, inverse, gain = ctx.saved_tensors
        product = grad * normed
        mean = (product @ gain).div_(gain.shape[0]).unsqueeze(-1)
        of_x = (grad * gain).addcmul_(normed, mean, value=-1).mul_(inverse)
        return of_x, product.flatten(0, -2).sum(0)
