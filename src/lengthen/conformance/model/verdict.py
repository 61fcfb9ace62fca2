"""What a check of somebody's model or module says, and all of it together."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from math import inf, isfinite
from typing import Any

from .formats import junit, table

OUTCOMES = ("pass", "fail", "error", "expected failure", "not applicable")
"""'error': the model raised where it should have answered."""


@dataclass(frozen=True)
class Measured:
    """An error, what is allowed in the same unit, and where it was found."""

    error: float
    tolerance: float
    remark: str = ""

    @property
    def good(self) -> bool:
        return isfinite(self.error) and self.error <= self.tolerance

    @property
    def ratio(self) -> float:
        """The error in units of what is allowed; infinite where nothing is allowed and something was found."""
        if not isfinite(self.error):
            return inf
        return self.error / self.tolerance if self.tolerance else (inf if self.error else 0.0)


def worst(found: Iterable[Measured]) -> Measured:
    """The finding that is furthest beyond its tolerance; the first of several that are infinitely far."""
    return max(found, key=lambda m: m.ratio)


@dataclass(frozen=True)
class Verdict:
    """The outcome of one check."""

    check: str
    outcome: str
    """One of `OUTCOMES`."""
    error: float | None = None
    """What was measured, in the unit of the check; None where nothing was."""
    tolerance: float | None = None
    """What is allowed, in the same unit."""
    reason: str = ""
    """Where it was measured, what was raised, or why the check does not apply."""
    asserts: str = ""
    """What the check asserts, in one line."""
    meaning: str = ""
    """What a failure means for the user; empty where there is none."""
    cause: str = ""
    """The usual cause; empty where there is no failure."""
    seconds: float = 0.0

    @property
    def bad(self) -> bool:
        """Whether it should fail a build."""
        return self.outcome in ("fail", "error")

    def confirm(self) -> None:
        """Raises AssertionError where the check failed and was not expected to."""
        if self.bad:
            raise AssertionError(f"{self.check}: {self.measured()}{self.reason}. {self.meaning} Usual cause: {self.cause}")

    def measured(self) -> str:
        """The two numbers in words, or nothing."""
        if self.error is None or self.tolerance is None:
            return ""
        return f"measured {self.error:.3g}, allowed {self.tolerance:.3g}. "


@dataclass(frozen=True)
class Report:
    """Every verdict on one subject."""

    subject: str
    verdicts: tuple[Verdict, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    """Library -> version."""

    def __getitem__(self, check: str) -> Verdict:
        return next(v for v in self.verdicts if v.check == check)

    @property
    def failures(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if v.bad)

    def counts(self) -> dict[str, int]:
        """Outcome -> number of verdicts, outcomes that did not occur left out."""
        found = Counter(v.outcome for v in self.verdicts)
        return {o: found[o] for o in OUTCOMES if found[o]}

    def summary(self) -> str:
        """One line, as for a badge."""
        words = {
            "pass": "passed",
            "fail": "failed",
            "error": "raised",
            "expected failure": "failed as expected",
            "not applicable": "n/a",
        }
        return "lengthen check: " + ", ".join(f"{n} {words[o]}" for o, n in self.counts().items())

    def table(self) -> Any:
        """A rich table; failures with what they mean and their usual cause."""
        return table(self)

    def junit(self) -> str:
        """JUnit XML of one test suite."""
        return junit([self])

    def to_json(self) -> dict[str, Any]:
        """Plain data; an infinite error is null."""
        rows = [asdict(v) for v in self.verdicts]
        for row in rows:
            row["error"] = row["error"] if row["error"] is not None and isfinite(row["error"]) else None
        return {"subject": self.subject, "summary": self.summary(), "versions": dict(self.versions), "verdicts": rows}
