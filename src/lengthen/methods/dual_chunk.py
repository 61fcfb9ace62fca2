"""Dual chunk attention: positions by chunks, three views of the distance (An et al. 2024, arXiv:2402.17463)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthen.core import Branch, Pattern, Scheme, UsageError, method
from lengthen.core.errors import require_count
from lengthen.core.patterns import Span, interval

from .rerope import Held


@dataclass(frozen=True)
class ChunksBack(Pattern):
    """Keys of the chunk `first` chunks back, to `last` back (None: to the beginning); j <= i in the query's own chunk, 0 back."""

    chunk: int
    first: int
    last: int | None

    relative = False
    causal = True

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        back = i // self.chunk - j // self.chunk
        shown = (back >= self.first) & (j <= i)
        return shown if self.last is None else shown & (back <= self.last)

    def spans(self, first: int, last: int, keys: int) -> tuple[Span, ...]:
        start = 0 if self.last is None else max(0, (first // self.chunk - self.last) * self.chunk)
        stop = min(last + 1, (last // self.chunk - self.first + 1) * self.chunk, keys)
        return ((start, stop),) if start < stop else ()

    def intervals(self, i: Tensor, keys: int) -> Tensor:
        own = i // self.chunk
        start = torch.zeros_like(i) if self.last is None else (own - self.last) * self.chunk
        return interval(start, torch.minimum(i + 1, (own - self.first + 1) * self.chunk), keys)


@dataclass(frozen=True)
class InChunk:
    """pos mod chunk."""

    chunk: int

    def __call__(self, pos: Tensor) -> Tensor:
        return pos % self.chunk


@dataclass(frozen=True)
class NextChunk:
    """min(chunk + pos mod chunk, most): where a query stands for the chunk before its own."""

    chunk: int
    most: int

    def __call__(self, pos: Tensor) -> Tensor:
        return (pos % self.chunk + self.chunk).clamp_max(self.most)


@method(
    "dual_chunk",
    family="remapping",
    paper="2402.17463",
    modifies=True,
    variants=({"chunk": 5, "local": 2}, {"released": True}),
)
def dual_chunk(train_length: int, *, chunk: int | None = None, local: int | None = None, released: bool = False) -> Scheme:
    """Keys stand at j mod s; queries at i mod s, near the chunk before at min(s + i mod s, c - 1), and at c - 1 for the rest.

    Section 3, equations 2, 5 and 7: inside a chunk of s tokens and for `local` tokens across its border distances are true;
    all stay below c = s + local. Keys have one position each, so they are cached turned. The published attention scales
    with the total length (0.05 ln(n/L) + 1), which would make early logits depend on later tokens; it is left out.

    chunk: s, in tokens; three quarters of the training length by default (released: five eighths).
    local: c - s, in tokens; by default what makes c the training length (released: an eighth of it).
    released: the constants of the authors' code, whose largest distance is s + local, one more than the paper's.
    """
    s, w = _sizes(train_length, chunk, local, released)
    for name, value in (("chunk", s), ("local", w)):
        require_count("dual_chunk", name, value, "tokens")
    if w > s:
        raise UsageError(
            f"dual_chunk sees at most one chunk of {s} tokens at true distances, got 'local' {w}. Lower it to {s}."
        )
    most, keys = s + w - (0 if released else 1), InChunk(s)
    return Scheme(
        branches=(
            Branch(ChunksBack(s, 0, 0), keys, keys),
            Branch(ChunksBack(s, 1, 1), NextChunk(s, most), keys),
            Branch(ChunksBack(s, 2, None), Held(most), keys),
        )
    )


def _sizes(train_length: int, chunk: int | None, local: int | None, released: bool) -> tuple[int, int]:
    s = chunk if chunk is not None else max(1, train_length * (5 if released else 6) // 8)
    if local is not None:
        return s, local
    return s, max(1, train_length // 8 if released else min(train_length - s, s))
