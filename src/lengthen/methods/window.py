"""Sliding window attention (Beltagy et al. 2020, arXiv:2004.05150; the causal form as in arXiv:2310.06825)."""

from dataclasses import dataclass

from torch import Tensor

from lengthen.core import Pattern, Scheme, method
from lengthen.core.errors import require_count
from lengthen.core.patterns import Span, interval


@dataclass(frozen=True)
class Window(Pattern):
    """The query itself and the `tokens` - 1 keys before it: 0 <= i - j < tokens."""

    tokens: int

    causal = True

    def __post_init__(self):
        require_count("Window", "tokens", self.tokens, "tokens")

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        return (j <= i) & (i - j < self.tokens)

    def spans(self, first: int, last: int, keys: int) -> tuple[Span, ...]:
        start, stop = max(0, first - self.tokens + 1), min(last + 1, keys)
        return ((start, stop),) if start < stop else ()

    def intervals(self, i: Tensor, keys: int) -> Tensor:
        return interval(i - self.tokens + 1, i + 1, keys)


@method("window", family="pattern", paper="2004.05150", modifies=True, variants=({"tokens": 1}, {"tokens": 7}))
def window(train_length: int, *, tokens: int | None = None) -> Scheme:
    """A query sees itself and the tokens just before it.

    tokens: visible tokens, the query included; the training length by default.
    """
    return Scheme(pattern=Window(tokens if tokens is not None else train_length))
