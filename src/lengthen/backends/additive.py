"""What a plan adds to scale * q . k, seen block by block: its terms, and -inf on what is not shown."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lengthen.core import Coordinates, Layout, Plan
from lengthen.core.patterns import Span

from .spans import Block, Spans, packed, spans, split, width

TILE = 1 << 15
"""(Query, key) pairs for which terms are computed at once, so that what they compute stays in the cache of a core."""


class Room:
    """Memory for one block of scores, used again by the next: fresh memory costs three times what fills it."""

    def __init__(self):
        self.held: Tensor | None = None

    def take(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Valid until the next call."""
        if self.held is None or self.held.numel() < math.prod(shape):
            self.held = torch.empty(math.prod(shape), dtype=dtype)
        return self.held[: math.prod(shape)].view(shape)


class Additive(ABC):
    """Scores to add, and where the gradient of a block of them goes.

    Rows are counted from the last query: distances then fall along rows and columns alike, and a table can be read as
    an overlapping view.
    """

    learned: tuple[Tensor, ...] = ()
    """What the scores are computed from, for gradients to reach."""
    batches: Sequence[slice] = (slice(None),)
    """Rows of the batch that are served together."""

    @property
    @abstractmethod
    def typical(self) -> int:
        """Keys that a query sees, by and large."""

    @abstractmethod
    def calls(self, block: Block, most: int) -> list[Spans]:
        """The keys of each call of a kernel, which together are all that the block sees. A call whose scores take memory
        has at most `most` keys."""

    @abstractmethod
    def block(self, block: Block, span: Span, room: Room | None = None) -> Tensor | None:
        """Nats, [B|1, H|1, rows, keys], -inf on what is not shown. None: nothing to add, all is shown. May lie in `room`."""

    @abstractmethod
    def collect(self, block: Block, span: Span, grad: Tensor, into: Sequence[Tensor]) -> None:
        """Adds the gradient [B, H, rows, keys] of a block to `into`, which stands for `learned`."""


def masked(added: Additive, block: Block, spans: Spans, room: Room | None = None) -> Tensor | None:
    """[B|1, H|1, rows, keys] of some intervals side by side, or None where nothing is added. May lie in `room`."""
    parts = [added.block(block, s, room if len(spans) == 1 else None) for s in spans]
    some = next((p for p in parts if p is not None), None)
    if some is None or len(parts) == 1:
        return some
    blank = lambda s: some.new_zeros(1, 1, 1, 1).expand(*some.shape[:3], s[1] - s[0])
    return torch.cat([blank(s) if p is None else p for p, s in zip(parts, spans, strict=True)], dim=3)


class Tiles(Additive):
    """Terms, pattern, documents and padding computed anew for each block: serves every layout."""

    def __init__(self, plan: Plan):
        self.layout, self.pattern, self.queries = plan.layout, plan.pattern, plan.q.shape[2]
        self.plan = replace(plan, layout=Layout(_reversed(plan.layout.q), plan.layout.k))
        self.learned = tuple(dict.fromkeys(p for t in plan.terms for p in t.parameters() if p.requires_grad))

    @property
    def typical(self) -> int:
        return width(spans(self.layout, self.pattern, slice(self.queries // 2, self.queries // 2 + 1)))

    def calls(self, block: Block, most: int) -> list[Spans]:
        return packed(spans(self.layout, self.pattern, upright(block.rows, self.queries)), most)

    def block(self, block: Block, span: Span, room: Room | None = None) -> Tensor:
        return torch.cat([scores(self.plan.part(block.rows, slice(*s))) for s in tiles(block, span)], dim=3)

    def collect(self, block: Block, span: Span, grad: Tensor, into: Sequence[Tensor]) -> None:
        for a, b in tiles(block, span):
            with torch.enable_grad():
                part = scores(self.plan.part(block.rows, slice(a, b)))
            own = grad[..., a - span[0] : b - span[0]].sum_to_size(part.shape)
            for total, of_one in zip(into, torch.autograd.grad(part, self.learned, own, allow_unused=True), strict=True):
                if of_one is not None:
                    total += of_one


def upright(rows: slice, queries: int) -> slice:
    """Rows counted from the last query, as they are counted from the first."""
    return slice(queries - rows.stop, queries - rows.start)


def _reversed(line: Coordinates) -> Coordinates:
    """The last token first."""
    turn = lambda t: None if t is None else t.flip(1)
    return Coordinates(turn(line.idx), turn(line.pos), turn(line.doc), turn(line.valid))


def tiles(block: Block, span: Span) -> list[Span]:
    """The span in pieces of about TILE pairs."""
    return split((span,), max(1, TILE // block.height))


def scores(plan: Plan) -> Tensor:
    """Terms of the whole plan, and -inf on what is not shown: [B|1, H|1, Q, K]."""
    with torch.autocast(plan.q.device.type, enabled=False):
        shown = plan.visible()
        total = torch.zeros(1, 1, *shown.shape[-2:], dtype=plan.dtype, device=plan.q.device)
        for term, tile in zip(plan.terms, plan.tiles(), strict=True):
            total = total + term(tile)
        return total.masked_fill(~shown, float("-inf"))
