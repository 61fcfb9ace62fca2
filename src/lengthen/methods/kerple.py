"""KERPLE: kernelised relative position (Chi et al. 2022, arXiv:2205.09921)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthen.core import DistanceTerm, Everywhere, Scheme, UsageError, method
from lengthen.core.errors import require_count

_LEAST = 0.01
"""Below which the released code clamps every parameter."""
_MOST = 2.0
"""Above which it clamps the exponent: -d^p is conditionally positive definite up to p = 2."""
_MARGIN = 1e-3
"""Initial values keep this far from their bounds, where the maps have no slope to learn by."""


class KERPLE(DistanceTerm):
    """Logarithmic kernel: b_h(d) = -p_h ln(1 + a_h |d|); power kernel: b_h(d) = -a_h |d|^p_h.

    p, a > 0.01, and p < 2 in the power kernel. Both start as in the released code, p ~ U(0, 2) and a ~ U(0, 1) per head.
    The release clamps its parameters at every forward, where they stop learning; here they are smooth maps of free numbers
    (0.01 + softplus, or a sigmoid from 0.01 to 2), inverted at the start so that the distribution is the released one.
    The power kernel with p = 1 is ALiBi with learned slopes. Nats; distances in tokens.
    """

    def __init__(self, heads: int, kernel: str = "log"):
        super().__init__()
        require_count("KERPLE", "heads", heads, "heads")
        if kernel not in ("log", "power"):
            raise UsageError(f"The 'kernel' of KERPLE must be 'log' or 'power', got {kernel!r}.")
        self.kernel = kernel
        p, a = 2 * torch.rand(heads), torch.rand(heads)
        self.free_p = nn.Parameter(_free_bounded(p) if kernel == "power" else _free(p))
        self.free_a = nn.Parameter(_free(a))

    def p(self, dtype: torch.dtype | None = None) -> Tensor:
        """[H]: nats per e-fold of distance in the logarithmic kernel, the exponent in the power kernel."""
        free = self.free_p.to(dtype)
        return _LEAST + ((_MOST - _LEAST) * free.sigmoid() if self.kernel == "power" else F.softplus(free))

    def a(self, dtype: torch.dtype | None = None) -> Tensor:
        """[H]: 1/tokens in the logarithmic kernel, nats per token^p in the power kernel."""
        return _LEAST + F.softplus(self.free_a.to(dtype))

    def at(self, distance: Tensor) -> Tensor:
        steps = distance.abs()
        p, a = (x(distance.dtype).view(-1, *[1] * distance.dim()) for x in (self.p, self.a))
        if self.kernel == "log":
            return -p * torch.log1p(a * steps)
        # The slope of 0^p in p would be 0 * ln 0; torch defines it as 0 for p >= 0, and p > 0 here.
        return -a * steps**p


def _free(value: Tensor) -> Tensor:
    """The x of which `value` is 0.01 + softplus(x)."""
    return (value - _LEAST).clamp_min(_MARGIN).expm1().log()


def _free_bounded(value: Tensor) -> Tensor:
    """The x of which `value` is the sigmoid from 0.01 to 2."""
    return ((value.clamp(_LEAST + _MARGIN, _MOST - _MARGIN) - _LEAST) / (_MOST - _LEAST)).logit()


@method(
    "kerple",
    family="additive bias",
    paper="2205.09921",
    variants=({"kernel": "power"}, {"bidirectional": True}),
)
def kerple(heads: int, *, kernel: str = "log", bidirectional: bool = False) -> Scheme:
    """Two learned numbers per head shape a logarithmic or power-law penalty on distance.

    kernel: 'log' is -p ln(1 + a d), 'power' is -a d^p; nats, distances in tokens.
    bidirectional: attention in both directions, which the kernel treats alike.
    """
    return Scheme(terms=[KERPLE(heads, kernel)], pattern=Everywhere() if bidirectional else None)
