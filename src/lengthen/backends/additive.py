"""What a plan adds to scale * q . k, seen block by block: its terms, and -inf on what is not shown."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from lengthen.core import Plan
from lengthen.core.patterns import Span

from .spans import spans


class Additive(ABC):
    """Scores to add, and where the gradient of a block of them goes.

    A block is some query rows and one interval of keys. Where `flipped`, row 0 is the last query.
    """

    flipped: bool = False
    stored: bool = False
    """Whether a block is a view, without memory of its own."""
    learned: tuple[Tensor, ...] = ()
    """What the scores are computed from, for gradients to reach."""

    @abstractmethod
    def spans(self, rows: slice) -> tuple[Span, ...]:
        """Intervals of keys outside which these rows see nothing."""

    @abstractmethod
    def block(self, rows: slice, span: Span) -> Tensor:
        """Nats, [B|1, H|1, rows, keys], -inf on what is not shown."""

    @abstractmethod
    def collect(self, rows: slice, span: Span, grad: Tensor, into: Sequence[Tensor]) -> None:
        """Adds the gradient [B, H, rows, keys] of a block to `into`, which stands for `learned`."""


class Whole(Additive):
    """All scores as one tensor [B|1, H|1, Q, K]: for short sequences."""

    stored = True

    def __init__(self, scores: Tensor):
        self.scores, self.learned = scores, (scores,)

    def spans(self, rows: slice) -> tuple[Span, ...]:
        return ((0, self.scores.shape[-1]),)

    def block(self, rows: slice, span: Span) -> Tensor:
        return self.scores[:, :, rows, slice(*span)]

    def collect(self, rows: slice, span: Span, grad: Tensor, into: Sequence[Tensor]) -> None:
        target = into[0][:, :, rows, slice(*span)]
        target += grad.sum_to_size(target.shape)


class Table(Additive):
    """A function of the distance on a run of tokens, from one table of Q + K - 1 scores per head.

    Row r, counted from the last query, and column c stand at distance `farthest - (r + c)`, so a block is an
    overlapping view of the table with both strides 1: no memory, forward or backward. Its gradient is summed along
    the anti-diagonals. A pattern that is not relative is applied to each block.
    """

    flipped = True

    def __init__(self, plan: Plan):
        self.layout, self.pattern, self.stored = plan.layout, plan.pattern, plan.pattern.relative
        key = ("table", plan.terms, plan.pattern, plan.dtype, torch.is_grad_enabled())
        self.table = plan.layout.remember(key, lambda: self._make(plan))
        self.learned = (self.table,)

    def _make(self, plan: Plan) -> Tensor:
        """[H|1, Q + K - 1], distances falling."""
        queries, keys = self.layout.q.tokens, self.layout.k.tokens
        farthest = self.layout.order_shift + queries - 1
        distance = torch.arange(farthest, farthest - queries - keys + 1, -1, device=plan.q.device)
        table = torch.zeros(1, len(distance), dtype=plan.dtype, device=plan.q.device)
        for term in plan.terms:
            table = table + term.at(distance.to(plan.dtype))
        if self.stored:
            table = table.masked_fill(~self.pattern(distance.clamp_min(0), -distance.clamp_max(0)), float("-inf"))
        return table.contiguous()

    def _unflipped(self, rows: slice) -> slice:
        return slice(self.layout.q.tokens - rows.stop, self.layout.q.tokens - rows.start)

    def spans(self, rows: slice) -> tuple[Span, ...]:
        return spans(self.layout, self.pattern, self._unflipped(rows))

    def block(self, rows: slice, span: Span) -> Tensor:
        heads, stride = self.table.shape[0], self.table.stride(0)
        shape = (1, heads, rows.stop - rows.start, span[1] - span[0])
        view = self.table.as_strided(shape, (heads * stride, stride, 1, 1), rows.start + span[0])
        if self.stored:
            return view
        i = self.layout.q.idx[0, self._unflipped(rows)].flip(0)
        j = self.layout.k.idx[0, slice(*span)]
        return view.masked_fill(~self.pattern(i[:, None], j[None]), float("-inf"))

    def collect(self, rows: slice, span: Span, grad: Tensor, into: Sequence[Tensor]) -> None:
        grad = grad.sum_to_size(1, self.table.shape[0], *grad.shape[2:])[0]
        heads, n, width = grad.shape
        # Rows padded by n zeros, read with one element less per row: anti-diagonals become columns.
        padded = grad.new_zeros(heads, n, width + n)
        padded[..., :width] = grad
        skewed = padded.as_strided((heads, n, width + n - 1), (n * (width + n), width + n - 1, 1))
        first = rows.start + span[0]
        into[0][:, first : first + width + n - 1] += skewed.sum(1)


class Tiles(Additive):
    """Terms, pattern, documents and padding computed anew for each block: serves every layout."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.learned = tuple(dict.fromkeys(p for t in plan.terms for p in t.parameters() if p.requires_grad))

    def spans(self, rows: slice) -> tuple[Span, ...]:
        return spans(self.plan.layout, self.plan.pattern, rows)

    def block(self, rows: slice, span: Span) -> Tensor:
        return scores(self.plan.part(rows, slice(*span)))

    def collect(self, rows: slice, span: Span, grad: Tensor, into: Sequence[Tensor]) -> None:
        with torch.enable_grad():
            block = self.block(rows, span)
        parts = torch.autograd.grad(block, self.learned, grad.sum_to_size(block.shape), allow_unused=True)
        for total, part in zip(into, parts, strict=True):
            if part is not None:
                total += part


def scores(plan: Plan) -> Tensor:
    """Terms of the whole plan, and -inf on what is not shown: [B|1, H|1, Q, K]."""
    with torch.autocast(plan.q.device.type, enabled=False):
        shown = plan.visible()
        total = torch.zeros(1, 1, *shown.shape[-2:], dtype=plan.dtype, device=plan.q.device)
        for term, tile in zip(plan.terms, plan.tiles(), strict=True):
            total = total + term(tile)
        return total.masked_fill(~shown, float("-inf"))
