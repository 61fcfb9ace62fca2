"""SHAPE: shifted absolute position embedding (Kiyono et al. 2021, arXiv:2109.05644)."""

import torch
from torch import Tensor

from lengthen.core import PositionMap, Scheme, UsageError, method
from lengthen.core.errors import require_count

from .sinusoidal import Sinusoidal


class Shift(PositionMap):
    """p -> p + k, with k ~ U{0..K-1} drawn for each row while training, and fixed in evaluation.

    In evaluation the paper describes ordinary positions, k = 0; the released code reads at k = K, one past the largest
    shift of training. Both are on offer and neither draws, so that decoding is exact. Documents packed into a row share
    its shift.
    """

    def __init__(self, shifts: int, evaluate: str = "zero"):
        super().__init__()
        require_count("SHAPE", "shifts", shifts, "positions")
        if evaluate not in ("zero", "most"):
            raise UsageError(f"The 'evaluate' of shape must be 'zero' (shift 0) or 'most' (shift {shifts}), got {evaluate!r}.")
        self.shifts, self.evaluate = shifts, evaluate

    @property
    def reads_tokens(self) -> bool:
        """Only to learn the number of rows to draw for."""
        return self.training

    def forward(self, idx: Tensor, tokens: Tensor | None = None) -> Tensor:
        if self.training:
            rows = len(idx if tokens is None else tokens)
            return idx + torch.randint(self.shifts, (rows, 1), device=idx.device)
        return idx if self.evaluate == "zero" else idx + self.shifts


@method("shape", family="absolute", paper="2109.05644", variants=({"evaluate": "most"},))
def shape(width: int, *, shifts: int = 500, evaluate: str = "zero", layout: str = "paper") -> Scheme:
    """Sinusoidal embedding whose positions are shifted at random, row by row, while training.

    shifts: K, the number of shifts 0..K-1 that are drawn from, positions.
    evaluate: 'zero' reads unshifted, as the paper describes; 'most' reads shifted by K, as the released code does.
    layout: of the sinusoids, 'paper' or 'tensor2tensor'.
    """
    return Scheme(embedding=Sinusoidal(width, layout), embedding_positions=Shift(shifts, evaluate))
