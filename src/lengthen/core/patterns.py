"""Which keys a query may see, from order alone. Composable: `Causal() & (Window(512) | Sinks(4))`."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import require_count

Span = tuple[int, int]
"""Half-open interval of key indices [first, last)."""


class Pattern(ABC):
    """A rule on (query index i, key index j). Documents and padding are not its business: see `Plan.visible`."""

    relative: bool = True
    """Depends on i - j only."""
    causal: bool = False
    """Never shows a key behind the query."""
    step: int = 1
    """Shows only keys that lie a multiple of so many tokens from the query."""

    @property
    def thinned(self) -> "Pattern":
        """What it shows among every `step`-th token, counted without those between."""
        return self

    @abstractmethod
    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        """Broadcastable int64 tensors -> bool of the broadcast shape."""

    def spans(self, first: int, last: int, keys: int) -> tuple[Span, ...]:
        """Intervals outside which no query of index [first, last] sees any of the keys 0..keys-1. Sorted, disjoint."""
        return ((0, min(last + 1, keys)),) if self.causal else ((0, keys),)

    def intervals(self, i: Tensor, keys: int) -> Tensor | None:
        """Exactly what each query sees of the keys 0..keys-1, int64 [Q] -> [Q, n, 2], half-open; None: not a few intervals.

        Intervals may be empty (0, 0) and may overlap.
        """
        return None

    def __and__(self, other: "Pattern") -> "Pattern":
        return Both(self, other)

    def __or__(self, other: "Pattern") -> "Pattern":
        return Either(self, other)


@dataclass(frozen=True)
class Both(Pattern):
    """Keys that both patterns show."""

    a: Pattern
    b: Pattern

    @property
    def relative(self) -> bool:
        return self.a.relative and self.b.relative

    @property
    def causal(self) -> bool:
        return self.a.causal or self.b.causal

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        return self.a(i, j) & self.b(i, j)

    def spans(self, first: int, last: int, keys: int) -> tuple[Span, ...]:
        met = ((max(s, t), min(e, u)) for s, e in self.a.spans(first, last, keys) for t, u in self.b.spans(first, last, keys))
        return tuple(sorted((s, e) for s, e in met if s < e))

    def intervals(self, i: Tensor, keys: int) -> Tensor | None:
        a, b = self.a.intervals(i, keys), self.b.intervals(i, keys)
        if a is None or b is None:
            return None
        start = torch.maximum(a[:, :, None, 0], b[:, None, :, 0])
        stop = torch.minimum(a[:, :, None, 1], b[:, None, :, 1])
        return interval(start.flatten(1), stop.flatten(1), keys)


@dataclass(frozen=True)
class Either(Pattern):
    """Keys that at least one pattern shows."""

    a: Pattern
    b: Pattern

    @property
    def relative(self) -> bool:
        return self.a.relative and self.b.relative

    @property
    def causal(self) -> bool:
        return self.a.causal and self.b.causal

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        return self.a(i, j) | self.b(i, j)

    def spans(self, first: int, last: int, keys: int) -> tuple[Span, ...]:
        merged: list[Span] = []
        for s, e in sorted((*self.a.spans(first, last, keys), *self.b.spans(first, last, keys))):
            if merged and s <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(e, merged[-1][1]))
            else:
                merged.append((s, e))
        return tuple(merged)

    def intervals(self, i: Tensor, keys: int) -> Tensor | None:
        a, b = self.a.intervals(i, keys), self.b.intervals(i, keys)
        return None if a is None or b is None else torch.cat((a, b), dim=1)


@dataclass(frozen=True)
class Everywhere(Pattern):
    """Every key: attention in both directions."""

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        return (i == i) & (j == j)

    def intervals(self, i: Tensor, keys: int) -> Tensor:
        return interval(torch.zeros_like(i), torch.full_like(i, keys), keys)


@dataclass(frozen=True)
class Causal(Pattern):
    """The query itself and what came before it."""

    causal = True

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        return j <= i

    def intervals(self, i: Tensor, keys: int) -> Tensor:
        return interval(torch.zeros_like(i), i + 1, keys)


@dataclass(frozen=True)
class Beyond(Pattern):
    """Keys at least `tokens` before the query: i - j >= tokens. What a window of `tokens` leaves out."""

    tokens: int

    causal = True

    def __post_init__(self):
        require_count("Beyond", "tokens", self.tokens, "tokens")

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        return i - j >= self.tokens

    def spans(self, first: int, last: int, keys: int) -> tuple[Span, ...]:
        stop = min(last - self.tokens + 1, keys)
        return ((0, stop),) if stop > 0 else ()

    def intervals(self, i: Tensor, keys: int) -> Tensor:
        return interval(torch.zeros_like(i), i - self.tokens + 1, keys)


def interval(start: Tensor, stop: Tensor, keys: int) -> Tensor:
    """int64 [Q] or [Q, n], both ends of intervals of keys -> [Q, n, 2], clipped to 0..keys; empty ones are (0, 0)."""
    start, stop = start.clamp(0, keys), stop.clamp(0, keys)
    ends = torch.stack((start, stop), dim=-1) * (start < stop)[..., None]
    return ends if ends.dim() == 3 else ends[:, None]
