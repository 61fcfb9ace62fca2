"""What is advised: ranked rows, what could not be read, one line to copy, and how sure that is."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from lengthen.core import parse
from lengthen.hf.target import takes_factor

from .candidates import AS_IS, Candidate
from .ranking import PASSAGES, STRETCHES, Row, apart, by_spec, rank
from .trial import Trial


@dataclass(frozen=True)
class Advice:
    """The result of `advise`."""

    model: str
    trained: int
    """Tokens, L."""
    target: int
    """Tokens, T."""
    trials: tuple[Trial, ...]
    wanted: tuple[Candidate, ...]
    """All candidates, read or not."""
    passages: tuple[str, ...]
    """Names of those that were to be read."""
    stopped: str | None
    """Why not everything was read; None: it was."""
    layers: str | None = None
    """The layer type that was extended, where types have spectra of their own."""
    original: int | None = None
    """The trained length, where it was given."""
    notes: tuple[str, ...] = ()
    """Warnings, such as too few documents."""

    @cached_property
    def rows(self) -> list[Row]:
        """What was read, best first."""
        return rank(self.trials, self.trained, self.target)

    @property
    def failures(self) -> dict[str, str]:
        """Candidates that could not be read, with the reason."""
        return {t.candidate.spec: t.failure for t in self.trials if t.failure is not None}

    @property
    def unread(self) -> list[str]:
        """Candidates that time did not reach."""
        tried = {t.candidate.spec for t in self.trials}
        return [c.spec for c in self.wanted if c.spec not in tried]

    @property
    def common(self) -> int:
        """Passages that all rows are computed on."""
        read = by_spec(self.trials).values()
        return len(set.intersection(*(set(found) for found in read))) if read else 0

    def recommended(self) -> Row | None:
        """The first row whose last token sees the whole target; where none does, the first row."""
        rows = self.rows
        return next((row for row in rows if row.facts.sees >= self.target), rows[0] if rows else None)

    def line(self) -> str | None:
        """The command that does what is recommended; None where nothing is, or nothing has to be done."""
        row = self.recommended()
        if row is None or row.candidate.spec == AS_IS:
            return None
        spec = row.candidate.spec
        exact = _has_factor(spec) or round(float(f"{self.target / self.trained:g}") * self.trained) != self.target
        length = f"--target {self.target}" if exact else f"--factor {self.target / self.trained:g}"
        more = "" if self.layers is None else f" --layers {self.layers}"
        more += "" if self.original is None else f" --original {self.original}"
        return f"lengthen extend {shlex.quote(self.model)} --method {shlex.quote(spec)} {length}{more} --out DIR"

    def sentences(self) -> list[str]:
        """How sure the advice is, what it costs, and what is missing."""
        rows, best = self.rows, self.recommended()
        if best is None:
            return ["Nothing could be read, so nothing is advised.", *self._missing()]
        said = [_whole(best, rows, self.target), self._certainty(best, rows), _holds(best), _far(best, rows, self.target)]
        return [s for s in [*said, *self._missing(), *self.notes] if s]

    def _certainty(self, best: Row, rows: Sequence[Row]) -> str:
        """Whether the recommended method can be told from the next one, on all passages that both have read."""
        others = [r for r in rows if r is not best and (r.facts.sees >= self.target or best.facts.sees < self.target)]
        if not others:
            return "There is nothing to compare it with."
        other, read = others[0], by_spec(self.trials)
        one, two = read[best.candidate.spec], read[other.candidate.spec]
        both = sorted(one.keys() & two.keys())
        found = apart([two[n] for n in both], [one[n] for n in both])
        names = f"{best.candidate.spec} is ahead of {other.candidate.spec} by {found.value:.4f} nats per token"
        if found.low is None or found.high is None:
            return f"{names}; {found.note}."
        sure = "they can be told apart on this text" if found.low > 0 else "they cannot be told apart on this text"
        return f"{names} (95% interval {found.low:.4f} to {found.high:.4f}, over {resampled(len(both))}): {sure}."

    def _missing(self) -> list[str]:
        said = []
        if self.stopped is not None:
            said.append(self.stopped)
        if self.unread:
            said.append(f"Not tried: {', '.join(self.unread)}.")
        if self.rows and self.common < len(self.passages):
            more = sum(row.passages > self.common for row in self.rows)
            tail = f"; {more} methods have read more, which the table leaves out" if more else ""
            said.append(f"All methods have read {self.common} of {len(self.passages)} passages{tail}.")
        return said

    def summary(self) -> dict[str, Any]:
        """Everything, fit for JSON."""
        return {
            "model": self.model,
            "trained": self.trained,
            "target": self.target,
            "passages": list(self.passages),
            "common_passages": self.common,
            "resampled": resampled(self.common),
            "rows": [_plain(n, row) for n, row in enumerate(self.rows, 1)],
            "failures": self.failures,
            "unread": self.unread,
            "stopped": self.stopped,
            "recommended": None if self.recommended() is None else self.recommended().candidate.spec,
            "command": self.line(),
            "sentences": self.sentences(),
        }


def resampled(passages: int) -> str:
    """What the intervals are over."""
    if passages >= PASSAGES:
        return f"{passages} passages"
    return f"{STRETCHES * passages} stretches of {passages} passage{'s' if passages != 1 else ''}"


def perplexity(nats: float) -> float:
    """exp, infinite where that overflows."""
    return math.exp(nats) if nats < 700 else math.inf


def _plain(place: int, row: Row) -> dict[str, Any]:
    given = asdict(row)
    candidate, facts = given.pop("candidate"), given.pop("facts")
    return {"rank": place, "method": candidate["spec"], "needs_tuning": candidate["tuning"], **facts, **given}


def _has_factor(spec: str) -> bool:
    """Whether the new length over the trained one stands in the spec already."""
    return any("factor" in options and takes_factor(method) for method, options in parse(spec))


def _whole(best: Row, rows: Sequence[Row], target: int) -> str | None:
    """What stands before the recommended method and why it was passed over."""
    before = [r.candidate.spec for r in rows[: rows.index(best)]]
    if before:
        return f"Ahead of {best.candidate.spec} by loss, but blind beyond their window: {', '.join(before)}."
    if best.facts.sees < target:
        return f"No method that sees the whole target was read; {best.candidate.spec} sees {best.facts.sees} tokens."
    return "The checkpoint holds as it is; nothing has to be changed." if best.candidate.spec == AS_IS else None


def _holds(best: Row) -> str:
    last = best.buckets[-1]
    ratio = perplexity(last.nats - best.inside)
    return f"Its perplexity from token {last.start} to the end is {ratio:.2f} times that inside the old window."


def _far(best: Row, rows: Sequence[Row], target: int) -> str | None:
    """Whether another method that sees everything finds more."""
    able = [r for r in rows if r.facts.sees >= target]
    if best.far.asked == 0:
        return "Retrieval was not asked for: the lengths, or this tokenizer, leave no room for needles."
    most = max(able, key=lambda r: r.far.right, default=best)
    if most.far.right > best.far.right:
        return (
            f"{most.candidate.spec} answers more questions about text beyond the old window, {most.far.right} of "
            f"{most.far.asked} against {best.far.right}."
        )
    return f"No method that sees the whole target answers more questions beyond the old window ({best.far.right} of {best.far.asked})."
