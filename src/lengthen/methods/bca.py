"""Blockwise causal attention (Sun et al. 2022, arXiv:2212.10554, section 3.3)."""

from dataclasses import dataclass

from torch import Tensor

from lengthen.core import Pattern, Scheme, method
from lengthen.core.errors import require_count
from lengthen.core.patterns import Span, interval


@dataclass(frozen=True)
class BlockwiseCausal(Pattern):
    """Its own block, causally, and the whole block before: j <= i and floor(i/block) - floor(j/block) <= 1.

    The longest visible distance is 2 block - 1. Depends on where the blocks lie, so it is not relative.
    """

    block: int

    relative = False
    causal = True

    def __post_init__(self):
        require_count("BlockwiseCausal", "block", self.block, "tokens")

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        return (j <= i) & (i // self.block - j // self.block <= 1)

    def spans(self, first: int, last: int, keys: int) -> tuple[Span, ...]:
        start, stop = max(0, (first // self.block - 1) * self.block), min(last + 1, keys)
        return ((start, stop),) if start < stop else ()

    def intervals(self, i: Tensor, keys: int) -> Tensor:
        return interval((i // self.block - 1) * self.block, i + 1, keys)


@method("bca", family="pattern", paper="2212.10554", modifies=True, variants=({"block": 1}, {"block": 5}))
def bca(train_length: int, *, block: int | None = None) -> Scheme:
    """A query sees its own block causally and the whole block before it; meant for reading beyond the training length.

    block: tokens per block; half the training length by default, so that no distance reaches the training length.
    """
    return Scheme(pattern=BlockwiseCausal(block if block is not None else train_length // 2))
