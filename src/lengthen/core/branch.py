"""A branch: a region of the (query, key) plane that is scored with positions of its own."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from .layout import Layout
from .patterns import Pattern

PositionChange = Callable[[Tensor], Tensor]
"""int64 or float64 [B|1, T] -> int64 or float64 [B|1, T]."""


def unchanged(pos: Tensor) -> Tensor:
    """Positions as they are."""
    return pos


@dataclass(frozen=True)
class Branch:
    """Self-Extend, ReRoPE, dual chunk attention: what `region` shows is scored at queries(q_pos) and keys(k_pos).

    The regions of a scheme's branches must not overlap; what none of them shows is not seen. Branches whose `keys` is one
    and the same function let the cache hold turned keys.
    """

    region: Pattern
    """On order, as every pattern; it is met with the scheme's own."""
    queries: PositionChange = unchanged
    keys: PositionChange = unchanged
    relative: bool = False
    """Whether adding a constant to all positions leaves every distance of this branch as it was."""

    def layout(self, layout: Layout) -> Layout:
        """The same tokens at this branch's positions, made once per forward."""
        at = lambda: Layout(layout.q.at(self.queries(layout.q.pos)), layout.k.at(self.keys(layout.k.pos)))
        return layout.remember(("branch", self), at)
