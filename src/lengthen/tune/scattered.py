"""Randomised positions: rows of the trained length, scattered over the target (Ruoss et al. 2023, arXiv:2305.16843).

PoSE's paper (arXiv:2309.10400, table 1) tunes LLaMA this way for comparison and finds it far worse: no two tokens are neighbours
any more.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthen.methods.randomised import draw

from .way import MOVED, Way, drawn


@dataclass(frozen=True)
class Scattered(Way):
    """Each row at a sorted sample of 0 .. target-1 without replacement."""

    @property
    def row(self) -> int:
        return self.trained

    @property
    def arms(self) -> tuple[str, ...]:
        return (MOVED,)

    def positions(self, rows: int, seed: tuple[int, ...]) -> Tensor:
        return drawn(lambda: draw(torch.arange(self.trained).expand(rows, -1), self.target), seed)
