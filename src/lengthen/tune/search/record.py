"""What a search remembers: every score, what is to be scored next, and where its random numbers are."""

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lengthen.core import UsageError
from lengthen.models.store import atomic_folder, read_json, settle

from .space import Candidate

FILE = "search.json"
EVERY = 1.0
"""Seconds between two writings: what is lost by being killed, and scored again."""


@dataclass(frozen=True)
class Scored:
    """A candidate with its score."""

    candidate: Candidate
    score: float


@dataclass
class Record:
    """The state of a search, on disk every second, and when it ends."""

    folder: Path
    about: Mapping[str, Any]
    rng: np.random.Generator
    queue: list[Candidate]
    scored: list[Scored] = field(default_factory=list)
    generation: int = 0
    _written: float = -math.inf
    """Seconds of the monotonic clock."""

    @staticmethod
    def open(
        folder: Path,
        about: Mapping[str, Any],
        resume: bool,
        begin: Callable[[], tuple[list[Candidate], np.random.Generator]],
    ) -> "Record":
        """The record of `folder`, or a new one. Raises UsageError where it is there unasked, or of another search."""
        about = json.loads(json.dumps(about))
        settle(folder)
        if not (folder / FILE).exists():
            if folder.exists() and any(folder.iterdir()):
                raise UsageError(f"{folder} holds other things than a search. Give another folder.")
            queue, rng = begin()
            return Record(folder, about, rng, queue)
        if not resume:
            raise UsageError(f"{folder} already holds a search. Resume it (resume=True, --resume) or give another folder.")
        return Record._read(folder, about)

    @staticmethod
    def _read(folder: Path, about: Mapping[str, Any]) -> "Record":
        found = read_json(folder / FILE)
        try:
            was, rng = found["about"], np.random.Generator(np.random.PCG64())
            rng.bit_generator.state = found["rng"]
            scored = [Scored(_candidate(s["candidate"]), s["score"]) for s in found["scored"]]
            record = Record(folder, about, rng, [_candidate(c) for c in found["queue"]], scored, found["generation"])
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{folder / FILE} is no search of this version of lengthen: {error}.") from error
        _require_same(folder, was, about)
        return record

    def add(self, score: float) -> None:
        """Books the score of the first in the queue."""
        self.scored.append(Scored(self.queue.pop(0), score))
        if time.monotonic() - self._written > EVERY:
            self.write()

    def advance(self, queue: list[Candidate]) -> None:
        """Begins the next generation."""
        self.queue, self.generation = queue, self.generation + 1

    def write(self) -> None:
        """Replaces the record on disk; killed at any moment, one is whole."""
        found = {
            "about": self.about,
            "generation": self.generation,
            "rng": self.rng.bit_generator.state,
            "queue": [asdict(c) for c in self.queue],
            "scored": [{"score": s.score, "candidate": asdict(s.candidate)} for s in self.scored],
        }
        with atomic_folder(self.folder, f"score {len(self.scored)} of the search") as partial:
            (partial / FILE).write_text(json.dumps(found) + "\n", encoding="utf-8")
        self._written = time.monotonic()


def _candidate(found: Mapping[str, Any]) -> Candidate:
    return Candidate(tuple(found["factors"]), found["start"], found["critical"])


def _require_same(folder: Path, was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for part in was.keys() | now.keys():
        a, b = was.get(part, {}), now.get(part, {})
        for name in sorted(a.keys() | b.keys()):
            if a.get(name) != b.get(name):
                raise UsageError(
                    f"The search in {folder} was begun with {name}={a.get(name)!r} and would resume with {name}={b.get(name)!r}. Resume "
                    "with the same settings, or give another folder."
                )
