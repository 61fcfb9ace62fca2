"""Where the queries and the keys of one forward stand: order, position and document, kept apart.

Letters of this package: B batch, T tokens, Q queries, K keys, H query heads, G key/value heads, D head size, C width.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Coordinates:
    """The coordinates of one side (the queries, or the keys) of an attention.

    A leading size of 1 means that all rows of the batch agree.
    """

    idx: Tensor
    """int64 [B|1, T]. Order of a token in its own sequence, from 0; -1 on padding. Patterns and counts read it."""
    pos: Tensor
    """int64 or float64 [B|1, T]. What an encoding sees: may be scaled, random, skipped or reset."""
    doc: Tensor | None = None
    """int64 [B|1, T]. Document of a token; tokens of different documents never see each other. None: one document."""
    valid: Tensor | None = None
    """bool [B|1, T]. False on padding. None: no padding."""

    @staticmethod
    def plain(tokens: int, start: int = 0, device: torch.device | str | None = None) -> "Coordinates":
        """Consecutive tokens of one unpadded document, the same in every row."""
        idx = torch.arange(start, start + tokens, device=device)[None]
        line = Coordinates(idx, idx)
        line.__dict__.update(in_order=True, is_run=True)
        return line

    @property
    def tokens(self) -> int:
        return self.idx.shape[1]

    @cached_property
    def in_order(self) -> bool:
        """Whether all rows are one unpadded document whose `idx` steps by exactly one."""
        return self.doc is None and self.valid is None and _steps_by_one(self.idx)

    @cached_property
    def is_run(self) -> bool:
        """Whether `pos` too steps by exactly one, in all rows alike."""
        return self.in_order and not self.pos.is_floating_point() and _steps_by_one(self.pos)

    def at(self, pos: Tensor) -> "Coordinates":
        """The same tokens, seen at other positions."""
        if pos is self.pos:
            return self
        other = replace(self, pos=pos)
        if "in_order" in self.__dict__:
            other.__dict__["in_order"] = self.in_order
        return other

    def take(self, tokens: slice) -> "Coordinates":
        """The coordinates of some of the tokens."""
        cut = lambda t: None if t is None else t[:, tokens]
        part = Coordinates(self.idx[:, tokens], self.pos[:, tokens], cut(self.doc), cut(self.valid))
        part.__dict__.update({fact: True for fact in ("in_order", "is_run") if self.__dict__.get(fact)})
        return part

    def thinned(self, step: int, first: int) -> "Coordinates":
        """Every `step`-th token from the one numbered `first`, of one document in order."""
        part = Coordinates(self.idx[:, first::step] // step, self.pos[:, first::step])
        part.__dict__["in_order"] = True
        return part


def _steps_by_one(t: Tensor) -> bool:
    return bool((t == t[:1]).all()) and bool((t.diff(dim=1) == 1).all())


@dataclass(frozen=True)
class Layout:
    """Queries and keys of one forward, with what has been derived from them (tables, masks), shared by all layers."""

    q: Coordinates
    k: Coordinates
    memo: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def plain(queries: int, keys: int | None = None, device: torch.device | str | None = None) -> "Layout":
        """The last `queries` tokens of `keys` consecutive ones (bottom-right aligned)."""
        keys = keys if keys is not None else queries
        line = Coordinates.plain(keys, device=device)
        return Layout(line if queries == keys else line.take(slice(keys - queries, keys)), line)

    @cached_property
    def in_order(self) -> bool:
        """Whether both sides are consecutive tokens of one unpadded document: what a pattern shows follows from the row."""
        return self.q.in_order and self.k.in_order

    @cached_property
    def is_run(self) -> bool:
        """Whether both sides are runs, so that distance depends on `row - column` only."""
        return self.q.is_run and self.k.is_run and self.shift == self.order_shift

    @cached_property
    def stride(self) -> int | float | None:
        """By how much `pos` steps from token to token, if by the same on both sides in order; a single token steps as others do."""
        if not self.in_order:
            return None
        steps = {s for c in (self.q, self.k) if c.tokens > 1 for s in c.pos.diff(dim=1).unique().tolist()}
        alike = all(bool((c.pos == c.pos[:1]).all()) for c in (self.q, self.k))
        return (next(iter(steps)) if steps else 1) if len(steps) <= 1 and alike else None

    @cached_property
    def order_shift(self) -> int:
        """`q.idx[0] - k.idx[0]` of a run, in tokens."""
        return int(self.q.idx[0, 0] - self.k.idx[0, 0])

    @cached_property
    def shift(self) -> int:
        """`q.pos[0] - k.pos[0]` of a run, in positions."""
        return int(self.q.pos[0, 0] - self.k.pos[0, 0])

    def remember(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """`make()`, computed once for all layers that share this layout. Lives as long as one forward."""
        if key not in self.memo:
            self.memo[key] = make()
        return self.memo[key]

    def every(self, step: int, start: int) -> "Layout":
        """Of sides in order, the tokens whose `idx` is `start` modulo `step`, counted anew; shared by all layers."""
        thin = lambda c: c.thinned(step, (start - int(c.idx[0, 0])) % step)
        return self.remember(("every", step, start), lambda: Layout(thin(self.q), thin(self.k)))

    def part(self, rows: slice, columns: slice = slice(None)) -> "Layout":
        """The layout of some queries and some keys, itself shared by all layers."""
        key = ("part", rows.start, rows.stop, columns.start, columns.stop)
        return self.remember(key, lambda: Layout(self.q.take(rows), self.k.take(columns)))
