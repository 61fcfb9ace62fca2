"""A learned position table read between its rows (Chen et al. 2023, arXiv:2306.15595, applied to a table)."""

import torch
from torch import Tensor

from lengthen.core import Scheme, method
from lengthen.core.errors import require_count
from lengthen.core.frequency import require_factor

from .learned import Learned


def stretched(table: Tensor, factor: float) -> Tensor:
    """[L, C] -> [round(s L), C]: row p is the table at p / s, linear between its rows, and its last row beyond that.

    Rows at multiples of s are rows of the table to the bit. Computed in float64, returned in the type of the table.
    """
    require_factor("an interpolated table", factor)
    at = torch.arange(round(factor * len(table)), dtype=torch.float64, device=table.device) / factor
    low = at.floor().long().clamp_max(len(table) - 1)
    high = (low + 1).clamp_max(len(table) - 1)
    share = (at - low).clamp_max(1.0)[:, None]
    rows = table.double()
    return (rows[low] + (rows[high] - rows[low]) * share).to(table.dtype)


class Stretched(Learned):
    """x + E(p / s), E a trained table of `length` rows; it has answers up to s times as many positions."""

    def __init__(self, length: int, width: int, factor: float, std: float = 0.02):
        super().__init__(length, width, std)
        require_factor("learned_interpolation", factor)
        self.factor = factor

    def forward(self, x: Tensor, pos: Tensor) -> Tensor:
        table = stretched(self.table, self.factor)
        self._require_rows(pos, len(table))
        real = torch.promote_types(x.dtype, torch.float32)
        rows = table[pos.clamp_min(0)].to(real).masked_fill(pos[..., None] < 0, 0)
        return (x.to(real) + rows).to(x.dtype)


@method("learned_interpolation", family="rescaling", paper="2306.15595", limited=True, variants=({"factor": 1.0},))
def learned_interpolation(width: int, train_length: int, *, factor: float = 4.0, length: int | None = None) -> Scheme:
    """A trained vector per position, read between its rows at p / factor.

    For checkpoints with a learned table (GPT-2, OPT), where it makes the table that many times as long; usually followed by
    a little training.

    factor: s, the new length over the trained one.
    length: rows of the table, positions; by default the training length.
    """
    rows = length if length is not None else train_length
    require_count("learned_interpolation", "length", rows, "positions")
    return Scheme(embedding=Stretched(rows, width, factor))
