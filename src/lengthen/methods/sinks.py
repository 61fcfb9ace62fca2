"""Attention sinks: the first tokens stay visible beside a window (Xiao et al. 2023, arXiv:2309.17453)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthen.core import Causal, Pattern, Scheme, method
from lengthen.core.errors import require_count
from lengthen.core.patterns import Span, interval

from .window import Window


@dataclass(frozen=True)
class Sinks(Pattern):
    """The first `tokens` keys of a sequence, seen by every query: j < tokens. Not causal: combine it with Causal by &."""

    tokens: int = 4

    relative = False

    def __post_init__(self):
        require_count("Sinks", "tokens", self.tokens, "tokens")

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        return (j < self.tokens) & (i == i)

    def spans(self, first: int, last: int, keys: int) -> tuple[Span, ...]:
        return ((0, min(self.tokens, keys)),)

    def intervals(self, i: Tensor, keys: int) -> Tensor:
        return interval(torch.zeros_like(i), torch.full_like(i, self.tokens), keys)


@method("sinks", family="pattern", paper="2309.17453", modifies=True, variants=({"tokens": 1, "window": 5},))
def sinks(train_length: int, *, tokens: int = 4, window: int | None = None) -> Scheme:
    """A query sees a window and the first tokens of its sequence, at their true positions.

    StreamingLLM also renumbers positions inside its cache; this method is the mask alone.

    tokens: first tokens that stay visible.
    window: visible tokens up to the query, the query included; by default what makes `tokens` + `window` the training length.
    """
    width = window if window is not None else max(1, train_length - tokens)
    return Scheme(pattern=Causal() & (Window(width) | Sinks(tokens)))
