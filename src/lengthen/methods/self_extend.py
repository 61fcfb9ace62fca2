"""Self-Extend: neighbours at true distances, the rest by groups (Jin et al. 2024, arXiv:2401.01325)."""

from dataclasses import dataclass

from torch import Tensor

from lengthen.core import Beyond, Branch, Scheme, UsageError, method
from lengthen.core.errors import require_count

from .window import Window


@dataclass(frozen=True)
class Grouped:
    """Tokens of a group share a position: floor(pos / group) + start."""

    group: int
    start: int = 0

    def __call__(self, pos: Tensor) -> Tensor:
        return pos // self.group + self.start


@method(
    "self_extend", family="remapping", paper="2401.01325", modifies=True, variants=({"window": 7, "group": 3}, {"group": 1})
)
def self_extend(train_length: int, *, window: int | None = None, group: int = 8) -> Scheme:
    """Distances below a window W are true; beyond it, tokens are counted by groups of G.

    floor(i/G) - floor(j/G) + W - floor(W/G) from i - j = W on (section 3.2, equation 4). Groups are counted from the start
    of each sequence, wherever padding lies. No distance exceeds the training length L up to (L - W) G + W tokens; the
    authors advise half to two thirds of that. The released code divides W / G without rounding, which leaves a jump of a
    fraction of a position at W where G does not divide it.

    window: W, neighbours at true distances, in tokens; a quarter of the training length by default (the paper: 1024 of 4096).
    group: G, tokens per position beyond the window.
    """
    w = window if window is not None else max(1, train_length // 4)
    require_count("self_extend", "window", w, "tokens")
    require_count("self_extend", "group", group, "tokens")
    if w >= train_length:
        raise UsageError(
            f"self_extend leaves positions for groups only where its window is shorter than the {train_length} trained tokens, "
            f"got {w}. Choose a window below {train_length}."
        )
    far = Branch(Beyond(w), Grouped(group, w - w // group), Grouped(group))
    return Scheme(branches=(Branch(Window(w), relative=True), far))
