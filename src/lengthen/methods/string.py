"""STRING: far distances moved down to the positions that training saw often (An et al. 2024, arXiv:2410.18745)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthen.core import Beyond, Branch, Scheme, Temperature, UsageError, method
from lengthen.core.errors import require_count, require_positive

from .window import Window

RELEASED_FACTOR = 0.1 * math.log(2) + 1
"""What the released code multiplies queries and keys by, whatever the length."""


@dataclass(frozen=True)
class Shifted:
    """pos + by."""

    by: int

    def __call__(self, pos: Tensor) -> Tensor:
        return pos + self.by


class Sharper(Temperature):
    """q . k times factor^2, at every length."""

    def __init__(self, factor: float):
        super().__init__()
        require_positive("string", "factor", factor, "times")
        self.factor = factor

    def forward(self, seen: Tensor) -> Tensor:
        return torch.full_like(seen, self.factor**2)[:, None]


@method(
    "string",
    family="remapping",
    paper="2410.18745",
    modifies=True,
    variants=({"shift": 7, "local": 3}, {"factor": round(RELEASED_FACTOR, 4)}),
)
def string(train_length: int, *, shift: int | None = None, local: int | None = None, factor: float = 1.0) -> Scheme:
    """Distances below S are true; from S on they restart at W: i - j - S + W (section 4.1).

    Made for reading inside the training length, whose last third of distances is hardly ever trained: it reaches
    L + S - W tokens. Keys keep their positions, so they are cached turned. The released prefill shows the distance S twice,
    once as S and once as W; its decoding, and this, once.

    shift: S, in tokens; a third of the training length by default.
    local: W, the least distance after the shift; by default 128 as in the paper, or a quarter of S where that is less.
    factor: multiplies queries and keys alike; the released code has 0.1 ln 2 + 1 = 1.0693.
    """
    s = shift if shift is not None else max(2, train_length // 3)
    require_count("string", "shift", s, "tokens")
    w = local if local is not None else min(128, max(1, s // 4))
    require_count("string", "local", w, "tokens")
    if w > s:
        raise UsageError(f"string moves distances down, from S on to W, so 'local' is at most 'shift': got {w} above {s}.")
    far = Branch(Beyond(s), Shifted(w - s), relative=True)
    sharper = None if factor == 1.0 else Sharper(factor)
    return Scheme(branches=(Branch(Window(s), relative=True), far), temperature=sharper)
