"""How much of the past a pattern can still show: what a cache may forget."""

from dataclasses import dataclass
from functools import reduce

from lengthen.core import Pattern, Scheme
from lengthen.core.patterns import Both, Either
from lengthen.methods.bca import BlockwiseCausal
from lengthen.methods.sinks import Sinks
from lengthen.methods.window import Window


@dataclass(frozen=True)
class Kept:
    """The first `sinks` tokens of a text, and the last `window` up to the query, the query included."""

    sinks: int
    window: int

    @property
    def tokens(self) -> int:
        """Most tokens that a query sees."""
        return self.sinks + self.window

    def __or__(self, other: "Kept") -> "Kept":
        return Kept(max(self.sinks, other.sinks), max(self.window, other.window))


def kept(scheme: Scheme) -> Kept | None:
    """What queries to come may see, or a little more; None: the whole text."""
    shown = [kept_by(branch.region) for branch in scheme.branches]
    if None in shown or not shown:
        return kept_by(scheme.pattern)
    return _smaller(kept_by(scheme.pattern), reduce(Kept.__or__, shown))


def kept_by(pattern: Pattern) -> Kept | None:
    """The same of a pattern."""
    match pattern:
        case Window(tokens=tokens):
            return Kept(0, tokens)
        case Sinks(tokens=tokens):
            return Kept(tokens, 1)
        case BlockwiseCausal(block=block):
            return Kept(0, 2 * block)
        case Both(a=a, b=b):
            return _smaller(kept_by(a), kept_by(b))
        case Either(a=a, b=b):
            both = kept_by(a), kept_by(b)
            return None if None in both else both[0] | both[1]
    return None


def _smaller(a: Kept | None, b: Kept | None) -> Kept | None:
    """Each shows all that both show."""
    return min((k for k in (a, b) if k is not None), key=lambda k: k.tokens, default=None)
