"""A new method in one file: write a stage, register a factory, and let the conformance suite judge it."""

import torch
from torch import Tensor, nn

from lengthen.conformance import check_method
from lengthen.core import DistanceTerm, Scheme, method


class LogPenalty(DistanceTerm):
    """b_h(d) = -r_h ln(1 + |d|), with r_h learned; nats."""

    def __init__(self, heads: int):
        super().__init__()
        self.rate = nn.Parameter(torch.linspace(0.5, 2.0, heads))

    def at(self, distance: Tensor) -> Tensor:
        rate = self.rate.to(distance.dtype).view(-1, *[1] * distance.dim())
        return -rate * torch.log1p(distance.abs())


@method("log_penalty", family="additive bias")
def log_penalty(heads: int) -> Scheme:
    """Logarithmic penalty on distance with a learned rate per head."""
    return Scheme(terms=[LogPenalty(heads)])


for result in check_method("log_penalty"):
    print(f"{result.name:14} {result.status:5} {result.reason or ''}")
