"""From readings to ranked rows with intervals.

Rank: by nats per token, the mean of the loss inside the old window and the loss from there to the target.

Everything in a row is computed on the passages that all candidates read, so rows compare the same tokens. Intervals are paired
bootstraps: over passages from `PASSAGES` on, else over stretches of text, which says how sure the order is on these passages
and not on others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from lengthen.evaluate import Interval, mean_interval, paired_bootstrap

from .candidates import AS_IS, Candidate
from .reading import BINS, Answer, Reading
from .trial import Facts, Trial

STRETCHES = 16
"""Parts that each passage's inside and beyond are cut into, one of each making a unit that is resampled."""
PASSAGES = 6
"""From so many on, passages are resampled, and no longer their parts."""
QUARTER = BINS // 4


@dataclass(frozen=True)
class Bucket:
    """A range of positions."""

    start: int
    """Tokens."""
    stop: int
    nats: float
    """Per token."""


@dataclass(frozen=True)
class Tally:
    """Answers about some needles."""

    right: int
    asked: int
    nats: float | None
    """Mean -log p of the right value among those hidden; None where nothing was asked."""


@dataclass(frozen=True)
class Row:
    """A candidate that was read."""

    candidate: Candidate
    facts: Facts
    passages: int
    """Those of the candidate's own; the numbers are of the common ones."""
    inside: float
    """Nats per token from the first scored token to the trained length."""
    lost: Interval | None
    """`inside` minus that of the checkpoint as it is; None where that was not read."""
    beyond: float
    """Nats per token from the trained length to the target."""
    score: float
    """Mean of the two: what ranks."""
    behind: Interval | None
    """`score` minus that of the first row; None for the first."""
    buckets: tuple[Bucket, ...]
    """By quarter of the trained length."""
    near: Tally
    """Needles inside the old window, seen from the end."""
    far: Tally
    decode: float | None
    """Seconds of a token over the stock model's, median over passages; None where that cannot stand there."""
    token_s: float
    """Median seconds of a token behind a passage."""
    cache_bytes: int
    """Of one row at the target."""


def rank(trials: Sequence[Trial], trained: int, target: int) -> list[Row]:
    """Rows, best first. Ties keep the order in which candidates were first read."""
    read = by_spec(trials)
    common = shared(read.values())
    if not common:
        return []
    values = {spec: [found[n] for n in common] for spec, found in read.items()}
    order = sorted(values, key=lambda spec: float(units(values[spec]).mean()))
    first = {t.candidate.spec: t for t in reversed(trials) if t.reading is not None}
    return [_row(first[spec], read[spec], values, spec, order[0], trained, target) for spec in order]


def by_spec(trials: Iterable[Trial]) -> dict[str, dict[int, Reading]]:
    """Readings by spec and passage; a candidate with a failure has none, for it cannot be relied on."""
    trials = list(trials)
    failed = {t.candidate.spec for t in trials if t.failure is not None}
    found: dict[str, dict[int, Reading]] = {}
    for t in trials:
        if t.reading is not None and t.candidate.spec not in failed:
            found.setdefault(t.candidate.spec, {})[t.passage] = t.reading
    return found


def shared(read: Iterable[Mapping[int, Reading]]) -> list[int]:
    """The passages that all have read."""
    sets = [set(found) for found in read]
    return sorted(set.intersection(*sets)) if sets else []


def units(readings: Sequence[Reading]) -> np.ndarray:
    """float64 [units]: parts whose mean is the score, (inside + beyond) / 2 in nats per token over all the readings."""
    parts = [(_parts(r, slice(0, BINS)), _parts(r, slice(BINS, None))) for r in readings]
    totals = [sum(part[side][1].sum() for part in parts) for side in (0, 1)]
    shares = np.stack([sum(part[side][0] / totals[side] for side in (0, 1)) / 2 for part in parts])
    kept = shares.sum(1) if len(readings) >= PASSAGES else shares.ravel()
    return kept * len(kept)


def lost(readings: Sequence[Reading], stock: Sequence[Reading]) -> Interval:
    """Nats per token inside the old window, minus the stock model's on the same tokens."""
    own, other = ([_parts(r, slice(0, BINS)) for r in side] for side in (readings, stock))
    gather = (lambda x: np.array([p.sum() for p in x])) if len(readings) >= PASSAGES else np.concatenate
    weights = gather([tokens for _, tokens in own])
    kept = weights > 0
    nats = [gather([nats for nats, _ in side])[kept] for side in (own, other)]
    return paired_bootstrap(*nats, weights[kept])


def apart(a: Sequence[Reading], b: Sequence[Reading]) -> Interval:
    """The score of a minus that of b, on the same passages."""
    return paired_bootstrap(units(a), units(b))


def interval(readings: Sequence[Reading]) -> Interval:
    """The score itself."""
    return mean_interval(units(readings))


def tally(answers: Iterable[Answer], trained: int, far: bool) -> Tally:
    """Answers about needles farther than the trained length from the end of the passage, or not."""
    kept = [a for a in answers if (a.distance > trained) == far]
    return Tally(sum(a.right for a in kept), len(kept), sum(a.nats for a in kept) / len(kept) if kept else None)


def buckets(readings: Sequence[Reading], trained: int, target: int) -> tuple[Bucket, ...]:
    """Losses by quarter of the trained length; quarters of which nothing was scored are left out."""
    nats, tokens = (np.sum([getattr(r, name) for r in readings], axis=0) for name in ("nats", "tokens"))
    found = []
    for start in range(0, len(nats), QUARTER):
        part = slice(start, start + QUARTER)
        if tokens[part].sum() > 0:
            edges = [min(target, n * trained // BINS) for n in (start, start + QUARTER)]
            found.append(Bucket(*edges, float(nats[part].sum() / tokens[part].sum())))
    return tuple(found)


def _parts(reading: Reading, side: slice) -> tuple[np.ndarray, np.ndarray]:
    """(nats [STRETCHES], tokens [STRETCHES]) of the scored bins of one side."""
    nats, tokens = np.asarray(reading.nats)[side], np.asarray(reading.tokens)[side]
    start = int(np.argmax(tokens > 0))
    cut = lambda x: np.array([part.sum() for part in np.array_split(x[start:], STRETCHES)])
    return cut(nats), cut(tokens)


def _row(
    trial: Trial,
    own: Mapping[int, Reading],
    values: Mapping[str, list[Reading]],
    spec: str,
    best: str,
    trained: int,
    target: int,
) -> Row:
    readings = values[spec]
    inside, beyond = (_mean(readings, side) for side in (slice(0, BINS), slice(BINS, None)))
    answers = [a for r in readings for a in r.answers]
    return Row(
        candidate=trial.candidate,
        facts=trial.facts,
        passages=len(own),
        inside=inside,
        lost=lost(readings, values[AS_IS]) if AS_IS in values else None,
        beyond=beyond,
        score=(inside + beyond) / 2,
        behind=None if spec == best else apart(readings, values[best]),
        buckets=buckets(readings, trained, target),
        near=tally(answers, trained, far=False),
        far=tally(answers, trained, far=True),
        decode=_ratio(own.values()),
        token_s=median(r.decode_s for r in own.values()),
        cache_bytes=readings[0].cache_bytes,
    )


def _mean(readings: Sequence[Reading], side: slice) -> float:
    return sum(sum(r.nats[side]) for r in readings) / sum(sum(r.tokens[side]) for r in readings)


def _ratio(readings: Iterable[Reading]) -> float | None:
    found = [r.decode_s / r.stock_s for r in readings if r.stock_s is not None]
    return median(found) if found else None
