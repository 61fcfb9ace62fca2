"""Bootstrap intervals over documents, and over seeds where there are several.

A value is a ratio of sums, never a mean of means: nats of all documents over tokens of all documents. Documents are
resampled whole. With several seeds, seeds and documents are drawn independently and crossed (Owen 2007, "The pigeonhole
bootstrap"), because every seed reads the same documents. Two readings of the same documents share the draws.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import stats

from lengthen.core.errors import UsageError


@dataclass(frozen=True)
class Interval:
    """An estimate with a bootstrap interval."""

    value: float
    """Ratio of sums."""
    low: float | None
    """Lower end; None where `note` says why there is no interval."""
    high: float | None
    documents: int
    """Documents resampled."""
    seeds: int
    """Training seeds resampled."""
    note: str | None = None
    """What limits the interval: losses that are not finite, few documents, few seeds."""


def mean_interval(
    sums: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """sum(sums) / sum(weights) with a percentile interval.

    sums: [documents] or [seeds, documents], such as nats. weights: [documents], such as tokens; None: 1 each.
    The percentiles are expanded by the t quantile (Hesterberg 2015, arXiv:1411.5279), without which a few
    documents give intervals that are too narrow.
    """
    sums = np.atleast_2d(np.asarray(sums, dtype=np.float64))
    weights = np.ones(sums.shape[-1]) if weights is None else np.asarray(weights, dtype=np.float64)
    _check(sums, weights, level, resamples)
    seeds, documents = sums.shape
    value = float(sums.sum() / (seeds * weights.sum()))
    bad = int((~np.isfinite(sums)).any(0).sum())
    if bad:
        return Interval(value, None, None, documents, seeds, f"{bad} of {documents} documents have losses that are not finite")
    if documents == 1:
        return Interval(value, None, None, documents, seeds, "one document: no interval")
    drawn = _draws(documents, resamples, seed)
    rows = _draws(seeds, resamples, seed + 1) if seeds > 1 else np.ones((resamples, 1))
    ratios = ((rows @ sums) * drawn).sum(1) / (seeds * (drawn @ weights))
    low, high = np.quantile(ratios, _tails(level, documents))
    few = [f"{documents} documents"] * (documents < 6) + [f"{seeds} seeds"] * (1 < seeds < 5)
    note = f"{' and '.join(few)}: the interval is a rough guide" if few else None
    return Interval(value, float(low), float(high), documents, seeds, note)


def paired_bootstrap(a: np.ndarray, b: np.ndarray, weights: np.ndarray | None = None, **how) -> Interval:
    """sum(a - b) / sum(weights) with the interval of `mean_interval`: both sides keep the same documents and seeds in every
    draw, so what makes a document hard for both cancels.

    a, b: [documents] or [seeds, documents] of the same predictions. Raises UsageError where the shapes differ.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.shape != b.shape:
        raise UsageError(
            f"Paired values must stand for the same seeds and documents, got shapes {list(a.shape)} and {list(b.shape)}."
        )
    with np.errstate(invalid="ignore"):
        return mean_interval(a - b, weights, **how)


def _check(sums: np.ndarray, weights: np.ndarray, level: float, resamples: int) -> None:
    if sums.ndim != 2 or sums.size == 0:
        raise UsageError(f"Values must be [documents] or [seeds, documents] and not empty, got the shape {list(sums.shape)}.")
    if weights.shape != sums.shape[1:]:
        raise UsageError(f"{sums.shape[1]} documents need as many weights, got the shape {list(weights.shape)}.")
    if not (weights > 0).all():
        raise UsageError(f"Weights count tokens or bytes and must be above zero, got {weights.min()}.")
    if not 0 < level < 1 or resamples < 1:
        raise UsageError(f"A level must lie in (0, 1) and resamples be at least 1, got {level} and {resamples}.")


@lru_cache(maxsize=16)
def _draws(units: int, resamples: int, seed: int) -> np.ndarray:
    """How often each unit is drawn, float64 [resamples, units]."""
    drawn = np.random.default_rng(seed).multinomial(units, np.full(units, 1 / units), size=resamples).astype(np.float64)
    drawn.setflags(write=False)
    return drawn


def _tails(level: float, units: int) -> tuple[float, float]:
    """Lower and upper probability of the expanded percentile interval."""
    t = stats.t.ppf((1 + level) / 2, units - 1)
    tail = stats.norm.cdf(-np.sqrt(units / (units - 1)) * t)
    return tail, 1 - tail
