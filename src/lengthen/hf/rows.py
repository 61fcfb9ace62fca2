"""A rotation for each row of a batch, where rows are settled for texts of their own lengths."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lengthen.core import Rotation, Scheme, UsageError


class ByRow(Rotation):
    """Row n of every batch is turned by the n-th rotation: short texts keep the frequencies that they were trained with."""

    def __init__(self, rotations: Sequence[Rotation]):
        super().__init__(rotations[0].size, rotations[0].interleaved)
        self.rows = tuple(rotations)

    def factors(self, pos: Tensor, centre: Tensor, keys: bool) -> Tensor:
        pos, centre = pos.expand(len(self.rows), -1), centre.expand(len(self.rows), -1)
        lines = [r.factors(pos[n : n + 1], centre[n : n + 1], keys) for n, r in enumerate(self.rows)]
        return torch.cat(lines)

    def look(self, module: nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> None:
        """A forward pre-hook: refuses batches of another number of rows before anything is computed."""
        given = [*(kwargs.get(name) for name in ("input_ids", "inputs_embeds")), *args]
        found = len(next(x for x in given if isinstance(x, Tensor)))
        if found != len(self.rows):
            raise UsageError(
                f"This model was extended for {len(self.rows)} rows of their own lengths, and this batch has {found}. "
                "Settle it again, by extension.at([...]) with one length for each row, or at(N) with one for all."
            )


def by_row(schemes: Sequence[Scheme]) -> Scheme:
    """Schemes that differ in their rotation only, as one. Raises UsageError where they differ in more, or may."""
    first = schemes[0]
    if first.rotation is None or first.terms or first.value_terms or first.branches or first.temperature is not None:
        raise UsageError(
            "Rows of their own lengths can differ in how they are turned, and in nothing else; this scheme is more than a "
            "rotation. Give one length for all rows, tokens=N."
        )
    return first if len(schemes) == 1 else Scheme(rotation=ByRow([s.rotation for s in schemes]), pattern=first.pattern)
