"""Scalable softmax, SSMax (Nakanishi 2025, arXiv:2501.19399)."""

import torch
from torch import Tensor, nn

from lengthen.core import Scheme, Temperature, method
from lengthen.core.errors import require_count, require_positive


class SSMax(Temperature):
    """softmax(s ln n * z) with a learned s per head and n the keys that the query itself sees; 0 at n = 1.

    s starts at 0.43, the paper's fit to what models learn. To convert a trained model start from
    0.168 = 1 / mean(ln n, n = 1..1024), which leaves the mean score of a length of 1024 alone. The paper's bias is left
    out: it harms longer contexts.
    """

    def __init__(self, heads: int, init: float = 0.43):
        super().__init__()
        require_count("SSMax", "heads", heads, "heads")
        require_positive("SSMax", "init", init, "logits per nat")
        self.s = nn.Parameter(torch.full((heads,), float(init)))

    def forward(self, seen: Tensor) -> Tensor:
        return self.s.double()[:, None] * seen.log()[:, None]


@method("ssmax", family="temperature", paper="2501.19399", modifies=True, variants=({"init": 0.168},))
def ssmax(heads: int, *, init: float = 0.43) -> Scheme:
    """Scores grow with the logarithm of the number of visible keys, at a rate learned per head.

    init: where the rates start; 0.43 from scratch, 0.168 for a model trained without it.
    """
    return Scheme(temperature=SSMax(heads, init))
