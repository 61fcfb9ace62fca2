"""The rotary module of a transformers model: how its tables are laid out, and the module that takes its place."""

from collections.abc import Mapping
from enum import Enum

import torch
from torch import Tensor, nn

from lengthen.core import Rotation
from lengthen.core.branch import PositionChange, unchanged


class Pairing(Enum):
    """Which channels turn together. A model's tables and its queries may differ in this (GLM)."""

    HALVES = "channels (i, i + R/2)"
    NEIGHBOURS = "channels (2i, 2i + 1)"

    def spread(self, x: Tensor) -> Tensor:
        """One value per pair [..., R/2] -> one per channel [..., R]."""
        return torch.cat((x, x), dim=-1) if self is Pairing.HALVES else x.repeat_interleave(2, dim=-1)

    def quarter(self, x: Tensor) -> Tensor:
        """Every pair turned by a quarter: (a, b) -> (-b, a)."""
        if self is Pairing.HALVES:
            a, b = x.chunk(2, dim=-1)
            return torch.cat((-b, a), dim=-1)
        return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)

    @property
    def interleaved(self) -> bool:
        return self is Pairing.NEIGHBOURS


class Turning(nn.Module):
    """Stands in for a rotary module: cosines and sines of a rotation at (changed) positions, angles in float64.

    Per layer type a rotation, or None for no turn at all (cosine 1, sine 0), so that a model's cache holds raw keys. Models
    with one spectrum have the one layer type None.
    """

    def __init__(
        self,
        rotations: Mapping[str | None, Rotation | None],
        table: Pairing,
        channels: int,
        changes: Mapping[str | None, PositionChange],
    ):
        super().__init__()
        self.rotations, self.table, self.channels, self.changes = dict(rotations), table, channels, dict(changes)

    def forward(self, x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> tuple[Tensor, Tensor]:
        """Any tensor of the model's type, int64 [B|1, T] -> two of [B|1, T, R]."""
        rotation = self.rotations[layer_type]
        if rotation is None:
            shape = (*position_ids.shape, self.channels)
            return x.new_ones(shape), x.new_zeros(shape)
        pos = self.changes.get(layer_type, unchanged)(position_ids).double()
        turn = rotation.factors(pos, torch.zeros_like(pos[:, :1]), keys=True)
        return self.table.spread(turn.real).to(x.dtype), self.table.spread(turn.imag).to(x.dtype)


class Constant(nn.Module):
    """The same cosine and sine everywhere, to see what a model does with them: (1, 0) turns nothing, nan marks what it turns."""

    def __init__(self, channels: int, cos: float, sin: float):
        super().__init__()
        self.channels, self.cos, self.sin = channels, cos, sin

    def forward(self, x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> tuple[Tensor, Tensor]:
        shape = (*position_ids.shape, self.channels)
        return x.new_full(shape, self.cos), x.new_full(shape, self.sin)
