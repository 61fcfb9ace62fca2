"""Protocols: which tokens are read for which scores. Published orderings of methods depend on it, so each has a name.

Prediction t of a document is the guess of token t + 1; a window that starts at token s gives it t - s + 1 tokens of
context. Windows are laid from the end of the document backwards, so that protocols meet in the same windows: the last
non-overlapping window is the fixed-target window, and a stride that divides the length visits both. No protocol skips a
prediction of what it scores or scores one twice.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from lengthen.core.errors import UsageError, require_count, unknown


@dataclass(frozen=True)
class Pick:
    """Read tokens [start, stop) of a document, score the newest: predictions [first, stop)."""

    start: int
    stop: int
    first: int

    @property
    def window(self) -> tuple[int, int]:
        return self.start, self.stop

    @property
    def scored(self) -> int:
        """Predictions that count."""
        return self.stop - self.first

    @property
    def least_context(self) -> int:
        """Tokens that the first scored prediction has read."""
        return self.first - self.start + 1

    @property
    def mean_context(self) -> float:
        """Tokens that a scored prediction has read, on average."""
        return (self.least_context + self.stop - self.start) / 2


@dataclass(frozen=True)
class Protocol(ABC):
    """A rule from a length to the windows that are read, and to what is scored of each."""

    name: ClassVar[str]
    scored: int
    """Predictions scored at the end of each document; a shorter document is scored whole."""

    @abstractmethod
    def picks(self, predictions: int, length: int) -> list[Pick]:
        """Windows of at most `length` tokens in a document of that many predictions, last first."""


@dataclass(frozen=True)
class NonOverlapping(Protocol):
    """Disjoint windows of n tokens, all scored: context 1 to n, so longer windows look better merely because fewer
    predictions stand early in one (Press et al. 2022, arXiv:2108.12409, appendix B). The first window may be shorter."""

    name = "non_overlapping"

    def picks(self, predictions: int, length: int) -> list[Pick]:
        begin = max(0, predictions - self.scored)
        starts = ((max(begin, stop - length), stop) for stop in range(predictions, begin, -length))
        return [Pick(start, stop, start) for start, stop in starts]


@dataclass(frozen=True)
class Sliding(Protocol):
    """Windows of n tokens that advance by a stride s, the newest s scored: context n - s + 1 to n. The window at the start
    of a document scores all of its predictions. Stride 1 is Press et al.'s sliding window: context n for every token."""

    name = "sliding"
    stride: int | None = None
    """Predictions scored per window; None: half the length."""

    def picks(self, predictions: int, length: int) -> list[Pick]:
        begin = max(0, predictions - self.scored)
        stride = self.stride if self.stride is not None else max(1, length // 2)
        found = []
        for stop in range(predictions, begin, -stride):
            if stop <= length:
                return [*found, Pick(0, stop, begin)]
            found.append(Pick(stop - length, stop, max(begin, stop - stride)))
        return found


@dataclass(frozen=True)
class FixedTargets(Protocol):
    """The same last predictions of each document, read with n tokens: flat means that more context is ignored, down that
    it is used, up that it harms (Kazemnejad et al. 2023, arXiv:2305.19466, appendix F)."""

    name = "fixed_targets"

    def picks(self, predictions: int, length: int) -> list[Pick]:
        return [Pick(max(0, predictions - length), predictions, max(0, predictions - self.scored))]


PROTOCOLS: dict[str, type[Protocol]] = {p.name: p for p in (NonOverlapping, Sliding, FixedTargets)}
"""Every protocol by name."""


def find_protocol(name: str) -> type[Protocol]:
    """The protocol of that name; hyphens and capitals do not matter. Near names are listed where there is none."""
    plain = name.strip().lower().replace("-", "_")
    if plain not in PROTOCOLS:
        raise unknown("protocol", name, PROTOCOLS)
    return PROTOCOLS[plain]


def make_protocols(
    names: Iterable[str],
    lengths: list[int],
    *,
    scored: int | None = None,
    sliding_scored: int | None = None,
    targets: int = 64,
    stride: int | None = None,
) -> tuple[Protocol, ...]:
    """The named protocols for rising `lengths`, without repeats.

    scored: predictions per document of `non_overlapping`; None: the longest length.
    sliding_scored: those of `sliding`; None: half of `scored`, so that none stands early in its window at any length.
    targets: those of `fixed_targets`, cut to the shortest length. stride: of `sliding`; None: half of each length.
    """
    require_count("evaluate", "targets", targets, "tokens")
    scored = scored if scored is not None else lengths[-1]
    sliding_scored = sliding_scored if sliding_scored is not None else max(1, scored // 2)
    for name, value in (("scored", scored), ("sliding_scored", sliding_scored), ("stride", 1 if stride is None else stride)):
        require_count("evaluate", name, value, "tokens")
    if stride is not None and stride > lengths[0]:
        raise UsageError(f"A stride of {stride} would skip tokens at length {lengths[0]}. Use at most {lengths[0]}.")
    made = {
        NonOverlapping: NonOverlapping(scored),
        Sliding: Sliding(sliding_scored, stride),
        FixedTargets: FixedTargets(min(targets, lengths[0])),
    }
    chosen = tuple(made[kind] for kind in dict.fromkeys(map(find_protocol, names)))
    if not chosen:
        raise UsageError(f"No protocol was asked for. Known: {', '.join(sorted(PROTOCOLS))}.")
    return chosen
