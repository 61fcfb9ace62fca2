"""Which trial comes next: every candidate on the first passage, then the best of them on the next, until time is up."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from .candidates import Candidate
from .trial import Trial

Order = Callable[[Sequence[Trial]], Sequence[str]]
"""Specs of trials, best first."""


@dataclass
class Schedule:
    """The order of trials, and the time that they take."""

    candidates: Sequence[Candidate]
    passages: int
    order: Order
    clock: Callable[[], float]
    deadline: float | None
    """On that clock; None: until all is read."""
    trials: list[Trial] = field(default_factory=list)
    """What came of those so far."""
    durations: dict[str, float] = field(init=False)
    """Seconds of each candidate's last reading; what was read before is expected to take as long again."""
    stopped: bool = False
    """Whether time ran out before everything was read."""

    def __post_init__(self):
        self.durations = {t.candidate.spec: t.reading.seconds for t in self.trials if t.reading is not None}

    def __iter__(self) -> Iterator[tuple[Candidate, int]]:
        """Trials to make; the caller adds each to `trials` before it asks for the next."""
        for passage in range(self.passages):
            for candidate in self._round(passage):
                if self._known(candidate.spec, passage):
                    continue
                if not self._fits(candidate.spec):
                    self.stopped = True
                    return
                start = self.clock()
                yield candidate, passage
                if self.trials[-1].reading is not None:
                    self.durations[candidate.spec] = self.clock() - start

    def left(self) -> int:
        """Trials that are still to be made, if nothing fails."""
        failed = {t.candidate.spec for t in self.trials if t.failure is not None}
        return sum(not self._known(c.spec, p) for c in self.candidates if c.spec not in failed for p in range(self.passages))

    def seconds_left(self) -> float | None:
        """Expected seconds to the end, or to the deadline if that is earlier; None before the first trial."""
        if not self.durations:
            return None
        whole = self.left() * self._mean()
        return whole if self.deadline is None else max(0.0, min(whole, self.deadline - self.clock()))

    def _round(self, passage: int) -> list[Candidate]:
        """As they are listed at first, by rank later; those that failed are left out."""
        failed = {t.candidate.spec for t in self.trials if t.failure is not None}
        going = [c for c in self.candidates if c.spec not in failed]
        if passage == 0:
            return going
        ranked = list(self.order(self.trials))
        return sorted(going, key=lambda c: ranked.index(c.spec) if c.spec in ranked else len(ranked))

    def _known(self, spec: str, passage: int) -> bool:
        return any(t.candidate.spec == spec and t.passage == passage for t in self.trials)

    def _fits(self, spec: str) -> bool:
        """Whether a trial would probably end in time; the first of all is always made."""
        if self.deadline is None or not self.trials:
            return True
        return self.clock() + self.durations.get(spec, self._mean()) <= self.deadline

    def _mean(self) -> float:
        """Seconds of a reading; refusals take next to none, and say nothing of the others."""
        return sum(self.durations.values()) / len(self.durations) if self.durations else 0.0
