"""Intervals against simulated truth, scipy, and variances by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from lengthen.core import UsageError
from lengthen.evaluate import mean_interval, paired_bootstrap


def expanded(level: float, n: int) -> float:
    """Level of the plain percentile interval that matches a t interval of n values."""
    return 1 - 2 * stats.norm.cdf(-math.sqrt(n / (n - 1)) * stats.t.ppf((1 + level) / 2, n - 1))


def test_the_value_is_a_ratio_of_sums():
    nats, tokens = np.array([10.0, 90.0]), np.array([10, 30])
    assert mean_interval(nats, tokens).value == 100 / 40
    assert paired_bootstrap(nats, np.array([5.0, 80.0]), tokens).value == 15 / 40
    assert mean_interval(np.stack((nats, 3 * nats)), tokens).value == 400 / 80


@pytest.mark.parametrize(("documents", "least"), [(6, 0.89), (12, 0.91), (24, 0.92)])
def test_intervals_cover_the_truth_as_often_as_they_say(documents, least):
    rng = np.random.default_rng(0)
    tokens = rng.integers(20, 200, size=(600, documents))
    nats = tokens * rng.normal(2.0, 0.3, size=(600, documents))
    hits = [i.low <= 2.0 <= i.high for i in (mean_interval(x, w, resamples=400) for x, w in zip(nats, tokens, strict=True))]
    assert least < np.mean(hits) < 0.98


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_ends_agree_with_scipy(level):
    rng = np.random.default_rng(1)
    tokens = rng.integers(50, 150, 20).astype(float)
    nats = tokens * rng.gamma(4, 0.5, 20)
    ratio = lambda x, w, axis: x.sum(axis) / w.sum(axis)
    peer = stats.bootstrap(
        (nats, tokens),
        ratio,
        paired=True,
        vectorized=True,
        method="percentile",
        confidence_level=expanded(level, 20),
        n_resamples=40_000,
        rng=np.random.default_rng(2),
    )
    own = mean_interval(nats, tokens, level=level, resamples=40_000)
    width = own.high - own.low
    assert own.low == pytest.approx(peer.confidence_interval.low, abs=0.03 * width)
    assert own.high == pytest.approx(peer.confidence_interval.high, abs=0.03 * width)


def test_pairing_narrows_the_interval_of_documents_that_are_hard_for_both():
    rng = np.random.default_rng(3)
    hard = rng.normal(2, 1, 30)
    a, b = hard + rng.normal(0.1, 0.05, 30), hard + rng.normal(0, 0.05, 30)
    paired = paired_bootstrap(a, b)
    apart = stats.bootstrap((a, b), lambda x, y, axis: x.mean(axis) - y.mean(axis), rng=rng).confidence_interval
    assert paired.low > 0 > apart.low
    assert paired.high - paired.low < 0.1 * (apart.high - apart.low)
    assert paired.low < 0.1 < paired.high


def test_seeds_and_documents_both_widen_the_interval():
    rng = np.random.default_rng(4)
    by_seed, by_document = rng.normal(0, 1, (12, 1)), rng.normal(0, 1, (1, 40))
    found = mean_interval(by_seed + by_document, resamples=20_000)
    spread = math.sqrt(by_seed.var() / 12 + by_document.var() / 40)
    z = stats.norm.ppf((1 + expanded(0.95, 40)) / 2)
    assert found.high - found.low == pytest.approx(2 * z * spread, rel=0.05)
    assert (found.seeds, found.documents, found.note) == (12, 40, None)


@pytest.mark.parametrize(
    ("shape", "words"), [((2, 10), "2 seeds:"), ((5, 3), "3 documents:"), ((4, 5), "5 documents and 4 seeds:")]
)
def test_few_seeds_and_few_documents_are_said_to_be_few(shape, words):
    assert mean_interval(np.random.default_rng(5).normal(size=shape)).note.startswith(words)


def test_one_document_has_no_interval():
    found = mean_interval(np.array([3.0]), np.array([2]))
    assert (found.value, found.low, found.high) == (1.5, None, None)
    assert "one document" in found.note


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_losses_that_are_not_finite_are_counted_never_dropped(bad):
    nats = np.array([[1.0, 2.0, bad], [1.0, 2.0, 3.0]])
    found = mean_interval(nats)
    assert not math.isfinite(found.value) and found.low is None and "1 of 3 documents" in found.note
    assert "1 of 3 documents" in paired_bootstrap(nats, nats).note


def test_the_same_seed_gives_the_same_interval_and_another_does_not():
    x = np.random.default_rng(6).normal(size=15)
    assert mean_interval(x, seed=1) == mean_interval(x, seed=1)
    assert mean_interval(x, seed=1) != mean_interval(x, seed=2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: paired_bootstrap(np.ones(3), np.ones(4)), r"\[3\] and \[4\]"),
        (lambda: mean_interval(np.ones(3), np.ones(2)), r"3 documents.*\[2\]"),
        (lambda: mean_interval(np.ones(3), np.array([1, 0, 1])), "above zero, got 0"),
        (lambda: mean_interval(np.ones((0,))), "not empty"),
        (lambda: mean_interval(np.ones((2, 2, 2))), r"\[2, 2, 2\]"),
        (lambda: mean_interval(np.ones(3), level=1.0), "got 1.0"),
    ],
)
def test_shapes_that_cannot_work_are_refused(call, words):
    with pytest.raises(UsageError, match=words):
        call()
