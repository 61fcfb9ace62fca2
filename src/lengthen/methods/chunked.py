"""Chunked local attention: blockwise attention with the identity permutation (Qiu et al. 2019, arXiv:1911.02972), causal."""

from dataclasses import dataclass

from torch import Tensor

from lengthen.core import Pattern, Scheme, method
from lengthen.core.errors import require_count
from lengthen.core.patterns import Span, interval


@dataclass(frozen=True)
class Chunked(Pattern):
    """Its own chunk, causally: j <= i and floor(i/tokens) = floor(j/tokens).

    Layers of Llama 4 that have rotary positions see this way. Depends on where the chunks lie, so it is not relative.
    """

    tokens: int

    relative = False
    causal = True

    def __post_init__(self):
        require_count("Chunked", "tokens", self.tokens, "tokens")

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        return (j <= i) & (i // self.tokens == j // self.tokens)

    def spans(self, first: int, last: int, keys: int) -> tuple[Span, ...]:
        start, stop = max(0, first // self.tokens * self.tokens), min(last + 1, keys)
        return ((start, stop),) if start < stop else ()

    def intervals(self, i: Tensor, keys: int) -> Tensor:
        return interval(i // self.tokens * self.tokens, i + 1, keys)


@method("chunked", family="pattern", paper="1911.02972", modifies=True, variants=({"tokens": 1}, {"tokens": 7}))
def chunked(train_length: int, *, tokens: int | None = None) -> Scheme:
    """A query sees its own chunk causally and nothing before it.

    tokens: tokens per chunk; the training length by default.
    """
    return Scheme(pattern=Chunked(tokens if tokens is not None else train_length))
