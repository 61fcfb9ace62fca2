"""Which keys a query may see, from order alone. Composable: `Causal() & (Window(512) | Sinks(4))`."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

Span = tuple[int, int]
"""Half-open interval of key indices [first, last)."""


class Pattern(ABC):
    """A rule on (query index i, key index j). Documents and padding are not its business: see `Plan.visible`."""

    relative: bool = True
    """Depends on i - j only."""
    causal: bool = False
    """Never shows a key behind the query."""

    @abstractmethod
    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        """Broadcastable int64 tensors -> bool of the broadcast shape."""

    def spans(self, first: int, last: int, keys: int) -> tuple[Span, ...]:
        """Intervals outside which no query of index [first, last] sees any of the keys 0..keys-1. Sorted, disjoint."""
        return ((0, min(last + 1, keys)),) if self.causal else ((0, keys),)

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


@dataclass(frozen=True)
class Everywhere(Pattern):
    """Every key: attention in both directions."""

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        return (i == i) & (j == j)


@dataclass(frozen=True)
class Causal(Pattern):
    """The query itself and what came before it."""

    causal = True

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        return j <= i
