"""BiPE: bilevel positional encoding (He et al. 2024, arXiv:2401.16421)."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from lengthen.core import DistanceTerm, Geometric, PositionMap, Scheme, UsageError, method
from lengthen.core.errors import require_count

from .alibi import authors_slopes, penalty
from .rope import Rotary
from .sinusoidal import Sinusoidal


def segments(idx: Tensor, tokens: Tensor, separators: Sequence[int]) -> tuple[Tensor, Tensor]:
    """int64 [B|1, T], int64 [B, T] -> (index inside the segment, number of the segment), int64 [B, T]; -1 on padding.

    A separator closes the segment that it belongs to. Both count from 0 and start anew where a document does.
    """
    real = (idx >= 0).expand_as(tokens)
    first, closes = (idx == 0).expand_as(tokens), real & torch.isin(tokens, torch.tensor(separators, device=tokens.device))
    place = real.cumsum(1) - 1
    closed = closes.cumsum(1) - closes.long()
    after = F.pad(torch.where(closes, place + 1, 0)[:, :-1], (1, 0))
    begin = torch.where(first, place, after).cummax(1).values
    number = closed - torch.where(first, closed, 0).cummax(1).values
    return (place - begin).masked_fill(~real, -1), number.masked_fill(~real, -1)


class Segments(PositionMap):
    """Where a token stands among segments: `level` 'inside' (its index in its segment, at most `longest` - 1) or 'number'."""

    reads_tokens = True

    def __init__(self, separators: Sequence[int], level: str, longest: int | None = None):
        super().__init__()
        self.separators, self.level, self.longest = tuple(separators), level, longest

    def forward(self, idx: Tensor, tokens: Tensor | None = None) -> Tensor:
        if tokens is None:
            raise UsageError("BiPE finds segments by their separators and got no tokens; pass them as position(idx, tokens).")
        inside, number = segments(idx, tokens, self.separators)
        if self.level == "number":
            return number
        return inside if self.longest is None else inside.clamp_max(self.longest - 1)


class SegmentALiBi(DistanceTerm):
    """b_h(d) = -96 m_h |d| for segments d apart, nats: ALiBi's slopes m_h times 96, as released.

    A segment is some tens of tokens long, so its slope is steeper than that of a token.
    """

    def __init__(self, heads: int):
        super().__init__()
        require_count("BiPE", "heads", heads, "heads")
        self.slopes = tuple(96 * m for m in authors_slopes(heads))

    def at(self, distance: Tensor) -> Tensor:
        return penalty(self.slopes, distance.abs())


@method("bipe", family="bilevel", paper="2401.16421", variants=({"attention": "alibi"},))
def bipe(
    heads: int,
    head_size: int,
    width: int,
    train_length: int,
    *,
    separators: int | Sequence[int] = (10, 46),
    attention: str = "rope",
    base: float = 10_000.0,
) -> Scheme:
    """Sinusoids of the index inside a segment, added to the embeddings; RoPE or ALiBi on the number of the segment.

    The released code learns a table for the index inside a segment; sinusoids need no training.

    separators: token ids that close a segment, as in (10, 46), which are newline and full stop in bytes; other
      vocabularies have others.
    attention: 'rope' (BiPE-RoPE) or 'alibi' (BiPE-ALiBi), on segment numbers.
    base: of the RoPE frequencies, radians per segment.
    """
    ids = (separators,) if isinstance(separators, int) else separators
    if not isinstance(ids, Sequence) or isinstance(ids, str) or not ids:
        raise UsageError(f"The 'separators' of bipe must be one token id or several, as in (10, 46), got {separators!r}.")
    for token in ids:
        require_count("bipe", "separators", token, "token ids", least=0)
    if attention not in ("rope", "alibi"):
        raise UsageError(f"The 'attention' of bipe must be 'rope' or 'alibi', got {attention!r}.")
    rope = attention == "rope"
    return Scheme(
        positions=Segments(ids, "number"),
        embedding=Sinusoidal(width),
        embedding_positions=Segments(ids, "inside", train_length),
        rotation=Rotary(Geometric(base), head_size) if rope else None,
        terms=() if rope else (SegmentALiBi(heads),),
    )
