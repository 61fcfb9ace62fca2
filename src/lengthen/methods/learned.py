"""Learned position embedding: a table of vectors (Gehring et al. 2017, arXiv:1705.03122, section 3.1; GPT-2, BERT)."""

import torch
from torch import Tensor, nn

from lengthen.core import Embedding, LengthError, Scheme, UsageError, method
from lengthen.core.errors import require_count, require_positive


class Learned(Embedding):
    """x + E[p], with E a trained table [length, C], initialised N(0, std^2) from torch's global generator.

    Padding (negative positions) gets nothing. Raises LengthError at positions that the table does not have: clamping
    them would make all later tokens look alike.
    """

    def __init__(self, length: int, width: int, std: float = 0.02):
        super().__init__()
        require_count("Learned", "length", length, "positions")
        require_count("Learned", "width", width, "channels")
        require_positive("Learned", "std", std, "standard deviation")
        self.table = nn.Parameter(torch.empty(length, width).normal_(std=std))

    def forward(self, x: Tensor, pos: Tensor) -> Tensor:
        self._require_rows(pos, len(self.table))
        real = torch.promote_types(x.dtype, torch.float32)
        rows = self.table[pos.clamp_min(0)].to(real).masked_fill(pos[..., None] < 0, 0)
        return (x.to(real) + rows).to(x.dtype)

    def _require_rows(self, pos: Tensor, length: int) -> None:
        if pos.is_floating_point():
            raise UsageError("A learned table has a row for each whole position, got real-valued positions; use sinusoidal.")
        last = int(pos.max())
        if last >= length:
            raise LengthError(
                f"The learned table has {length} positions, from 0 to {length - 1}, and was asked for position {last}. Read at "
                f"most {length} tokens, train with 'learned:length={last + 1}', or use a method without a table, such as alibi."
            )


@method("learned", family="absolute", paper="1705.03122", limited=True)
def learned(width: int, train_length: int, *, length: int | None = None, std: float = 0.02) -> Scheme:
    """A trained vector per position, added to the token embeddings; no answer beyond its table.

    length: rows of the table, positions; by default the training length.
    std: standard deviation of the initial rows; GPT-2's, where token embeddings have amplitude 1.
    """
    return Scheme(embedding=Learned(length if length is not None else train_length, width, std))
