"""Dilated sliding window attention (Beltagy et al. 2020, arXiv:2004.05150, section 3.1; causal)."""

from dataclasses import dataclass

from torch import Tensor

from lengthen.core import Pattern, Scheme, method
from lengthen.core.errors import require_count
from lengthen.core.patterns import Span

from .window import Window


@dataclass(frozen=True)
class Dilated(Pattern):
    """Every `step`-th of the keys before the query, `tokens` of them: i - j = 0, step, ..., (tokens - 1) step."""

    tokens: int
    step: int

    causal = True

    def __post_init__(self):
        require_count("Dilated", "tokens", self.tokens, "tokens")
        require_count("Dilated", "step", self.step, "tokens")

    @property
    def thinned(self) -> Pattern:
        return Window(self.tokens)

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        return (j <= i) & (i - j < self.tokens * self.step) & ((i - j) % self.step == 0)

    def spans(self, first: int, last: int, keys: int) -> tuple[Span, ...]:
        start, stop = max(0, first - (self.tokens - 1) * self.step), min(last + 1, keys)
        return ((start, stop),) if start < stop else ()


@method("dilated", family="pattern", paper="2004.05150", modifies=True, variants=({"step": 1}, {"tokens": 3, "step": 5}))
def dilated(train_length: int, *, tokens: int | None = None, step: int = 2) -> Scheme:
    """A query sees itself and every `step`-th token before it, so that as many keys reach `step` times as far.

    tokens: visible tokens, the query included; by default as many as span the training length.
    step: tokens from one visible key to the next.
    """
    return Scheme(pattern=Dilated(tokens if tokens is not None else -(-train_length // step), step))
