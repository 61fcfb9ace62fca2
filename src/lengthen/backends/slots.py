"""Scores that follow from column minus row, and the columns that each row sees: O(L) numbers, next to nothing per block."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lengthen.core import Layout, Needs, Plan
from lengthen.core.patterns import Span

from .additive import Additive, Room, upright
from .channels import side_by_side
from .columns import ramp, seen_columns
from .ribbon import add_diagonals, ribbon
from .spans import Block, Spans, covered, packed, spans, touched, width, without
from .warped import Warped

_CORE = 512
"""Least keys in sight of all rows of a block for which a call of their own, without a mask, pays."""


def slots(plan: Plan) -> "Slots | None":
    """None where positions skip, a document lies in pieces, a pattern has no intervals, or a term needs more."""
    layout, pattern = plan.layout, plan.pattern
    if plan.needs > Needs.WARPED or sum(t.needs == Needs.WARPED for t in plan.terms) > 1:
        return None
    line = _line(layout) if plan.terms else (0.0, 1.0)
    seen = seen_columns(layout, pattern)
    relative = layout.in_order and pattern.relative
    if line is None or (isinstance(seen, str) and not relative):
        return None
    return Slots(plan, line, None if isinstance(seen, str) else seen, relative)


def _line(layout: Layout) -> tuple[float, float] | None:
    """(F, S), if every visible pair of row r and column c stands at distance F + S (r - c)."""
    if layout.is_run:
        return float(layout.shift), 1.0
    line = ramp(layout)
    return None if isinstance(line, str) else (line.first, line.step)


class Slots(Additive):
    """A table per head, a warp, or both, and intervals of columns per row.

    A block of the table is a view. A pattern that is itself a function of the distance is -inf in the table; others are
    filled in, but not where all rows see all keys. A row of the batch has its own intervals where documents or padding do.
    """

    def __init__(self, plan: Plan, line: tuple[float, float], seen: Tensor | None, relative: bool):
        self.layout, self.pattern, self.queries, self.dtype = plan.layout, plan.pattern, plan.q.shape[2], plan.dtype
        self.relative, self.tabled = relative, any(t.needs == Needs.DISTANCE for t in plan.terms)
        self.seen = None if seen is None else plan.layout.remember(("upside down", plan.pattern), lambda: seen.flip(1))
        key = ("table", plan.terms, plan.pattern if relative else None, plan.dtype, torch.is_grad_enabled())
        table, self.warp = plan.layout.remember(key, lambda: self._make(plan, line))
        self.table = None if table is None else side_by_side(table)
        self.learned = (*(() if self.table is None else (self.table,)), *(self.warp.learned if self.warp else ()))
        rows = 1 if seen is None else len(seen)
        self.batches = [slice(b, b + 1) for b in range(rows)] if rows > 1 else (slice(None),)

    def _make(self, plan: Plan, line: tuple[float, float]) -> tuple[Tensor | None, Warped | None]:
        """[H|1, Q + K - 1], rows less columns falling."""
        apart = torch.arange(self.queries - 1, -plan.k.shape[2], -1)
        distance, of = line[0] + line[1] * apart.double(), lambda needs: [t for t in plan.terms if t.needs == needs]
        scores = [t.at(distance.to(plan.dtype)) for t in of(Needs.DISTANCE)]
        table = sum(scores[1:], scores[0]) if scores else None
        warp = next((Warped.of(t, distance, self.layout, plan.dtype) for t in of(Needs.WARPED)), None)
        return self._with_pattern(table, apart + self.layout.order_shift) if self.relative else table, warp

    def _with_pattern(self, table: Tensor | None, distance: Tensor) -> Tensor:
        hidden = ~self.pattern(distance.clamp_min(0), -distance.clamp_max(0))
        table = torch.zeros(1, len(distance), dtype=self.dtype) if table is None else table
        return table.masked_fill(hidden, float("-inf")) if bool(hidden.any()) else table

    @property
    def typical(self) -> int:
        if self.seen is None:
            return width(spans(self.layout, self.pattern, slice(self.queries // 2, self.queries // 2 + 1)))
        return int(self.seen.diff(dim=-1).sum() / max(1, int((self.seen[..., 1] > 0).any(-1).sum())))

    def calls(self, block: Block, most: int) -> list[Spans]:
        seen, free = self._of(block), self.relative and self.warp is None
        every = spans(self.layout, self.pattern, upright(block.rows, self.queries)) if seen is None else touched(seen)
        core = () if seen is None or (free and self.tabled) else covered(seen)
        core = core if width(core) >= max(_CORE, 2 * block.height) else ()
        heavy = lambda part: packed(part, most)
        whole = lambda part: [part] if part else []
        return (heavy if self.warp else whole)(core) + (whole if free else heavy)(without(every, core))

    def _of(self, block: Block) -> Tensor | None:
        """int [rows, n, 2]."""
        return None if self.seen is None else self.seen[block.batch if len(self.seen) > 1 else slice(None), block.rows][0]

    def block(self, block: Block, span: Span, room: Room | None = None) -> Tensor | None:
        view = None if self.table is None else ribbon(self.table, block.rows, span)
        if self.relative and self.warp is None and self.tabled:
            return view
        seen = self._of(block)
        core = seen is not None and any(a <= span[0] and span[1] <= b for a, b in covered(seen))
        view = None if core and not self.tabled else view
        if self.warp:
            warp = self.warp.block(block, span, room)
            view = warp if view is None else warp.add_(view)
        return view if core or self.relative else self._hide(view, seen, span)

    def _hide(self, view: Tensor | None, seen: Tensor, span: Span) -> Tensor:
        view = torch.zeros(1, 1, len(seen), span[1] - span[0], dtype=self.dtype) if view is None else view
        column = torch.arange(*span, dtype=seen.dtype)
        shown = ((column >= seen[..., :1]) & (column < seen[..., 1:])).any(1)
        return view.masked_fill(~shown, float("-inf"))

    def collect(self, block: Block, span: Span, grad: Tensor, into: Sequence[Tensor]) -> None:
        if self.table is not None:
            add_diagonals(into[0], block.rows, span, grad.sum_to_size(1, self.table.shape[0], *grad.shape[2:])[0])
        if self.warp:
            self.warp.collect(block, span, grad, into[len(into) - 4 :])
