"""Evolutionary search, resumable to the same numbers (algorithm 1 of arXiv:2402.13753)."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lengthen.core import UsageError
from lengthen.core.errors import require_count

from .record import Record, Scored
from .space import Candidate, Space

Score = Callable[[Candidate], float]
"""Lower is better: a perplexity. Not finite: as bad as can be."""
Progress = Callable[[int, int, float], None]
"""Hears scores made, scores in all, and the best so far."""


@dataclass(frozen=True)
class EvolutionConfig:
    """The released code's settings."""

    population: int = 64
    """Individuals of the first generation."""
    generations: int = 40
    """After the first."""
    parents: int = 32
    """The best so far, from which each generation is made."""
    mutations: int = 16
    """Children of one parent, per generation."""
    crossovers: int = 16
    """Children of two."""
    probability: float = 0.3
    """Of each part of a child to change."""
    tries: int = 20
    """To make a child that was not scored yet; then the generation goes on without it."""
    seed: int = 0

    def __post_init__(self):
        for name in ("population", "parents", "tries"):
            require_count("EvolutionConfig", name, getattr(self, name), "individuals")
        for name in ("generations", "mutations", "crossovers", "seed"):
            require_count("EvolutionConfig", name, getattr(self, name), "individuals", least=0)
        if self.parents > self.population:
            raise UsageError(f"{self.parents} parents cannot come out of a population of {self.population}; lower 'parents'.")
        if not 0 < self.probability <= 1:
            raise UsageError(f"The 'probability' of a change must lie in (0, 1], got {self.probability}.")

    @property
    def scores(self) -> int:
        """Scores of the whole search, at most."""
        return self.population + self.generations * (self.mutations + self.crossovers)


@dataclass(frozen=True)
class Found:
    """How a search ended."""

    best: Candidate
    score: float
    first: float
    """The best of the known rules that it began with."""
    scores: int
    status: Literal["done", "stopped"]
    reason: str | None


def evolve(
    space: Space,
    score: Score,
    config: EvolutionConfig,
    folder: str | Path,
    *,
    facts: Mapping[str, Any] | None = None,
    resume: bool = False,
    most_scores: int | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Found:
    """Searches `space` for the lowest score; `folder`/search.json holds every score, and the state of the random numbers.

    most_scores, seconds: a budget, of all sittings and of this one; where it ends, the best so far is returned with the status
    'stopped', and so it is on a KeyboardInterrupt. With `resume` the search goes on as if it had not been stopped. facts: what
    else decides the scores, compared when it resumes.

    Raises UsageError for a folder that holds a search (without `resume`), and for one with other settings.
    """
    about = {"space": {"name": type(space).__name__, **asdict(space)}, "config": asdict(config), "facts": dict(facts or {})}
    record = Record.open(Path(folder), about, resume, lambda: _first(space, config))
    begun, reason = time.monotonic(), None
    try:
        while reason is None and _ensure_queue(record, space, config):
            reason = _spent(record, config, most_scores, begun, seconds)
            if reason is None:
                record.add(_finite(score(record.queue[0])))
                if progress is not None:
                    progress(len(record.scored), config.scores, min(s.score for s in record.scored))
    except KeyboardInterrupt:
        reason = f"Interrupted after {len(record.scored)} of at most {config.scores} scores; resume to go on."
    finally:
        if record.scored:
            record.write()
    return _found(record, space, reason)


def _first(space: Space, config: EvolutionConfig) -> tuple[list[Candidate], np.random.Generator]:
    """Known rules, and mutations of them."""
    rng = np.random.Generator(np.random.PCG64(config.seed))
    known = list(dict.fromkeys(space.starting()))[: config.population]
    made = list(known)
    for n in range(config.population - len(known)):
        child = _new(lambda n=n: space.mutate(known[n % len(known)], rng, config.probability), set(made), config.tries)
        made += [child] if child is not None else []
    return made, rng


def _ensure_queue(record: Record, space: Space, config: EvolutionConfig) -> bool:
    """Makes the next generation where the last is scored. False: the search is over."""
    while not record.queue:
        if record.generation == config.generations:
            return False
        record.advance(_children(record, space, config))
    return True


def _children(record: Record, space: Space, config: EvolutionConfig) -> list[Candidate]:
    parents = [s.candidate for s in sorted(record.scored, key=lambda s: s.score)[: config.parents]]
    rng, seen, made = record.rng, {s.candidate for s in record.scored}, []
    pick = lambda: parents[int(rng.integers(len(parents)))]
    moves = [lambda: space.mutate(pick(), rng, config.probability)] * config.mutations
    moves += [lambda: space.cross(pick(), pick(), rng, config.probability)] * config.crossovers
    for move in moves:
        child = _new(move, seen, config.tries)
        if child is not None:
            made.append(child)
            seen.add(child)
    return made


def _new(move: Callable[[], Candidate], seen: set[Candidate], tries: int) -> Candidate | None:
    return next((child for child in (move() for _ in range(tries)) if child not in seen), None)


def _spent(record: Record, config: EvolutionConfig, most: int | None, begun: float, seconds: float | None) -> str | None:
    done = len(record.scored)
    if most is not None and done >= most:
        return f"The budget of {most} scores is spent, of at most {config.scores}; resume with more to go on."
    if seconds is not None and time.monotonic() - begun >= seconds:
        return f"The budget of {seconds:g} seconds is spent after {done} of at most {config.scores} scores; resume to go on."
    return None


def _finite(score: float) -> float:
    return score if math.isfinite(score) else math.inf


def _found(record: Record, space: Space, reason: str | None) -> Found:
    if not record.scored:
        raise UsageError(f"The search ended before its first score: {reason} Give it a larger budget.")
    best: Scored = min(record.scored, key=lambda s: s.score)
    known = set(space.starting())
    first = min((s.score for s in record.scored if s.candidate in known), default=math.inf)
    return Found(best.candidate, best.score, first, len(record.scored), "done" if reason is None else "stopped", reason)
