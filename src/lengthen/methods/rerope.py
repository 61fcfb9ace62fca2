"""ReRoPE: distances that stop growing at a window, or leak on slowly (Su 2023, kexue.fm/archives/9708, bojone/rerope)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthen.core import Beyond, Branch, Scheme, method
from lengthen.core.errors import require_count, require_positive

from .window import Window


@dataclass(frozen=True)
class Held:
    """Every token stands at one position."""

    position: int

    def __call__(self, pos: Tensor) -> Tensor:
        return torch.full_like(pos, self.position)


@dataclass(frozen=True)
class Slowed:
    """Positions count 1/`factor` each, from `start`: start + pos / factor, float64."""

    factor: float
    start: float = 0.0

    def __call__(self, pos: Tensor) -> Tensor:
        return self.start + pos.double() / self.factor


def _window(train_length: int, window: int | None) -> int:
    width = window if window is not None else max(1, train_length // 4)
    require_count("rerope", "window", width, "tokens")
    return width


@method("rerope", family="remapping", paper=None, modifies=True, variants=({"window": 1}, {"window": 7}))
def rerope(train_length: int, *, window: int | None = None) -> Scheme:
    """Distances below a window are true, all others equal the window: min(i - j, w).

    The author's code also multiplies queries by max(1, ln n / ln L): add `log_n:clip=True`.

    window: w, the largest distance, in tokens; a quarter of the training length by default (the author: 1024 of 4096).
    """
    w = _window(train_length, window)
    far = Branch(Beyond(w), Held(w), Held(0), relative=True)
    return Scheme(branches=(Branch(Window(w), relative=True), far))


@method("leaky_rerope", family="remapping", paper=None, modifies=True, variants=({"window": 7, "factor": 3.5},))
def leaky_rerope(train_length: int, *, window: int | None = None, factor: float = 8.0) -> Scheme:
    """Distances below a window are true and grow 1/factor a token beyond it: w + (i - j - w) / factor.

    window: w, the true distances, in tokens; a quarter of the training length by default.
    factor: tokens per position beyond the window; inside the training length L as long as w + (n - w) / factor < L.
    """
    w = _window(train_length, window)
    require_positive("leaky_rerope", "factor", factor, "tokens per position")
    far = Branch(Beyond(w), Slowed(factor, w - w / factor), Slowed(factor), relative=True)
    return Scheme(branches=(Branch(Window(w), relative=True), far))
