"""Training data for tuning: rows of long documents, a share of the steps at the original length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lengthen.core import UsageError
from lengthen.data import Batches, TokenDocument

from .way import Way


@dataclass(frozen=True)
class TuneBatch:
    """One step's rows."""

    ids: Tensor
    """int64 [B, T]."""
    targets: Tensor
    """int64 [B, T]; -100 is not scored."""
    extra: Mapping[str, Any]
    """'arm', and 'pos' int64 [B, T] or None."""
    doc: None = None


class TuneBatches:
    """A pure function of the step. No row crosses a border of documents and none is padded: shorter documents are left out.

    With `mix`, that share of the steps, evenly spread, reads plain rows of the trained length, as many tokens as the others:
    the model's own task, so that it keeps it (as LongRoPE2 mixes windows, arXiv:2502.20082, section 3.4).
    """

    def __init__(self, documents: Sequence[TokenDocument], way: Way, batch: int, steps: int, mix: float = 0.0, seed: int = 0):
        if not 0 <= mix < 1:
            raise UsageError(f"The share of steps at the original length must lie in [0, 1), got {mix}.")
        self.way, self.batch, self.steps, self.mix, self.seed = way, batch, steps, mix, seed
        self._long = Batches(long_enough(documents, way.row), way.row, batch, seed, packing="cut")
        rows = max(1, batch * way.row // way.trained)
        self._short = Batches(long_enough(documents, way.trained), way.trained, rows, seed + 1, packing="cut") if mix else None

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a step at the new length."""
        return self._long.tokens_per_step

    def at(self, step: int) -> TuneBatch:
        before = self._short_steps(step)
        if self._short_steps(step + 1) > before:
            found = self._short.at(before)
            return TuneBatch(found.ids, found.targets, {"arm": self.way.short_arm(step, self.steps), "pos": None})
        found = self._long.at(step - before)
        pos = self.way.positions(len(found.ids), (self.seed, step))
        return TuneBatch(found.ids, found.targets, {"arm": self.way.arm(step, self.steps), "pos": pos})

    def _short_steps(self, step: int) -> int:
        """How many of the steps before this one were at the original length."""
        return int(step * self.mix)


def long_enough(documents: Sequence[TokenDocument], tokens: int) -> list[TokenDocument]:
    """The documents that fill a row and its last target. Raises UsageError where there is none."""
    kept = [d for d in documents if len(d.ids) > tokens]
    if not kept:
        longest = max((len(d.ids) for d in documents), default=0)
        raise UsageError(
            f"No document is long enough: the longest of {len(documents)} has {longest} tokens, and a row of {tokens} needs "
            f"{tokens + 1}. Give longer documents, a shorter target, or PoSE, whose rows have the trained length."
        )
    return kept
