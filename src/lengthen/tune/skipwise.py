"""PoSE: rows of the trained length whose chunks stand apart in the target (Zhu et al. 2023, arXiv:2309.10400)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthen.core import UsageError
from lengthen.core.errors import require_count
from lengthen.methods.pose import PositionalSkips

from .way import MOVED, Way, drawn


@dataclass(frozen=True)
class SkipWise(Way):
    """Memory and time of the trained length, every distance up to the target. Positions are drawn by
    `methods.pose.PositionalSkips`, anew for every row; 1 chunk is plain training at the trained length."""

    chunks: int = 2
    """Pieces of a row; the paper has 2. Each skip takes half of the room that is left on average, so late ones are small."""

    def __post_init__(self):
        super().__post_init__()
        require_count("SkipWise", "chunks", self.chunks, "chunks")
        if self.chunks > self.trained:
            raise UsageError(
                f"A row of {self.trained} tokens cannot be cut into {self.chunks} chunks; give at most {self.trained}, as in 2."
            )

    @property
    def row(self) -> int:
        return self.trained

    @property
    def arms(self) -> tuple[str, ...]:
        return (MOVED,)

    def positions(self, rows: int, seed: tuple[int, ...]) -> Tensor:
        skips = PositionalSkips(self.target, self.chunks).train()
        return drawn(lambda: skips(torch.arange(self.trained).expand(rows, -1)), seed)
