"""Batches as a pure function of the step: to resume, to compare methods and to repeat, nothing needs to be stored."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lengthen.core.errors import UsageError, require_count, unknown

IGNORED = -100
"""The target that a loss passes over, as `torch.nn.functional.cross_entropy` does."""


@dataclass(frozen=True)
class TokenDocument:
    """One whole document as tokens."""

    name: str
    ids: np.ndarray
    """int64 [T]."""
    source: str


@dataclass(frozen=True)
class Batch:
    """B rows of L tokens."""

    ids: Tensor
    """int64 [B, L]."""
    targets: Tensor
    """int64 [B, L]: the next token of the same document, or -100."""
    doc: Tensor | None
    """int64 [B, L]: number of the document within its row, from 0. None: no row crosses a border."""


class Batches:
    """Endless batches, the rows of each epoch in an order of its own.

    'cut': every document is cut into rows, none crosses a border. A last piece shorter than a row begins earlier, with
    the tokens that were targets already ignored; a document shorter than a row is padded on the right with ignored
    zeros, which no causal model sees.
    'packed': the documents follow each other in rows without padding; `doc` tells them apart.

    Each token with a predecessor in its document is a target exactly once per epoch, which is `rows` consecutive rows; a
    batch may hold the end of one epoch and the beginning of the next. The order depends on (seed, epoch) only, by the raw
    numbers of Philox, which no version of numpy changes.
    """

    def __init__(self, documents: Sequence[TokenDocument], length: int, batch: int, seed: int, packing: str = "packed"):
        require_count("Batches", "length", length, "tokens", least=2)
        require_count("Batches", "batch", batch, "rows")
        require_count("Batches", "seed", seed, "seeds", least=0)
        if packing not in ("packed", "cut"):
            raise unknown("packing", packing, ("packed", "cut"))
        self.length, self.batch, self.seed, self.packing = length, batch, seed, packing
        sizes = np.array([len(d.ids) for d in documents if len(d.ids)], dtype=np.int64)
        self._tokens = _compact([d.ids for d in documents if len(d.ids)])
        if len(self._tokens) <= length:
            raise UsageError(
                f"The training part is too small: {len(documents)} documents with {len(self._tokens)} tokens, where one row "
                f"needs {length + 1}. Give more text or a shorter length."
            )
        self._opens = np.zeros(len(self._tokens), dtype=bool)
        self._opens[np.cumsum(sizes) - sizes] = True
        self._start, self._stop, self._fresh = _rows(sizes if packing == "cut" else sizes.sum(keepdims=True), length)
        if not len(self._start) or self._opens.all():
            raise UsageError(f"No document has two tokens, so none of the {len(self._tokens)} tokens can be predicted.")
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, dtype=np.int64))

    @property
    def rows(self) -> int:
        """Rows of an epoch."""
        return len(self._start)

    @property
    def epoch_steps(self) -> int:
        """Steps after which every token has been a target at least once."""
        return -(-self.rows // self.batch)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a batch."""
        return self.batch * self.length

    def at(self, step: int) -> Batch:
        """The batch of a step, from 0: the same whenever and in whatever order it is asked for."""
        require_count("Batches", "step", step, "steps", least=0)
        first = step * self.batch
        return self._gather(np.array([self._row(n) for n in range(first, first + self.batch)]))

    def _row(self, number: int) -> int:
        epoch, place = divmod(number, self.rows)
        if self._order[0] != epoch:
            raw = np.random.Philox(key=np.array([self.seed, epoch], dtype=np.uint64)).random_raw(self.rows)
            self._order = (epoch, np.argsort(raw, kind="stable"))
        return self._order[1][place]

    def _gather(self, rows: np.ndarray) -> Batch:
        steps = np.arange(self.length + 1)
        index = self._start[rows, None] + steps
        inside = index < self._stop[rows, None]
        index = np.minimum(index, len(self._tokens) - 1)
        ids = np.where(inside, self._tokens[index], 0).astype(np.int64)
        opens = self._opens[index] & inside
        wanted = inside[:, 1:] & ~opens[:, 1:] & (steps[:-1] >= self._fresh[rows, None])
        crossing = opens[:, 1:-1].any()
        doc = np.cumsum(np.pad(opens[:, 1:-1], ((0, 0), (1, 0))), axis=1) if crossing else None
        return Batch(
            torch.from_numpy(ids[:, :-1].copy()),
            torch.from_numpy(np.where(wanted, ids[:, 1:], IGNORED)),
            torch.from_numpy(doc) if doc is not None else None,
        )


def _compact(arrays: list[np.ndarray]) -> np.ndarray:
    """All tokens in one array of the smallest type that holds them."""
    top = max((int(a.max()) for a in arrays), default=0)
    kind = np.min_scalar_type(top)
    return np.concatenate([a.astype(kind) for a in arrays]) if arrays else np.empty(0, dtype=kind)


def _rows(sizes: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(start, stop, fresh) of each row, int64, for pieces of these sizes that lie one after the other.

    A row reads tokens from `start` on, before `stop`; its first `fresh` targets belong to the row before.
    """
    ends = np.cumsum(sizes)
    per_piece = -(-(sizes - 1) // length)
    piece = np.repeat(np.arange(len(sizes)), per_piece)
    nth = np.arange(len(piece)) - np.repeat(np.cumsum(per_piece) - per_piece, per_piece)
    plain = ends[piece] - sizes[piece] + nth * length
    start = np.maximum(np.minimum(plain, ends[piece] - length - 1), ends[piece] - sizes[piece])
    return start, ends[piece], plain - start
