"""Patterns against their sentences, and spans against a brute-force count over the boolean matrix."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthen.core import Causal, Everywhere, UsageError
from lengthen.core.scheme import meet
from lengthen.methods.bca import BlockwiseCausal
from lengthen.methods.sinks import Sinks
from lengthen.methods.window import Window

BASES = st.one_of(
    st.just(Causal()),
    st.just(Everywhere()),
    st.builds(Window, st.integers(1, 12)),
    st.builds(Sinks, st.integers(1, 6)),
    st.builds(BlockwiseCausal, st.integers(1, 7)),
)
PATTERNS = st.recursive(
    BASES,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda ab: ab[0] & ab[1]), st.tuples(inner, inner).map(lambda ab: ab[0] | ab[1])
    ),
    max_leaves=4,
)


def matrix(pattern, queries: range, keys: int) -> np.ndarray:
    i, j = torch.arange(queries.start, queries.stop), torch.arange(keys)
    return pattern(i[:, None], j[None, :]).numpy()


def members(spans) -> set[int]:
    return {j for first, last in spans for j in range(first, last)}


def seen(shown: np.ndarray) -> set[int]:
    return set(np.flatnonzero(shown.any(0)).tolist())


@given(PATTERNS, st.integers(0, 30), st.integers(0, 8), st.integers(1, 30))
@settings(max_examples=150, deadline=None)
def test_spans_hold_every_visible_key_sorted_and_disjoint(pattern, first, more, keys):
    spans = pattern.spans(first, first + more, keys)
    assert seen(matrix(pattern, range(first, first + more + 1), keys)) <= members(spans)
    assert all(0 <= s < e <= keys for s, e in spans)
    assert all(a[1] <= b[0] for a, b in pairwise(spans))


@given(PATTERNS, st.integers(0, 30), st.integers(1, 30))
@settings(max_examples=150, deadline=None)
def test_spans_of_one_query_are_exact(pattern, i, keys):
    assert members(pattern.spans(i, i, keys)) == seen(matrix(pattern, range(i, i + 1), keys))


@given(BASES, st.integers(0, 30), st.integers(0, 8), st.integers(1, 30))
@settings(max_examples=150, deadline=None)
def test_spans_of_a_single_pattern_are_exact(pattern, first, more, keys):
    assert members(pattern.spans(first, first + more, keys)) == seen(matrix(pattern, range(first, first + more + 1), keys))


@given(PATTERNS)
@settings(max_examples=100, deadline=None)
def test_declared_facts_hold(pattern):
    shown = matrix(pattern, range(24), 24)
    if pattern.causal:
        assert not np.triu(shown, 1).any()
    if pattern.relative:
        for d in range(-23, 24):
            assert len(set(np.diagonal(shown, d).tolist())) == 1


def test_a_causal_window_with_sinks_leaves_the_skipped_tiles_out():
    pattern = Causal() & (Window(8) | Sinks(4))
    assert pattern.spans(64, 71, 1000) == ((0, 4), (57, 72))
    assert pattern.spans(0, 1, 1000) == ((0, 2),)


def test_patterns_are_values():
    assert Window(3) == Window(3) and hash(Causal() & Sinks(2)) == hash(Causal() & Sinks(2))
    assert Window(3) != Window(4) and Causal() != Everywhere()


def test_meeting_drops_what_is_implied():
    assert meet([Causal(), Causal()]) == Causal()
    assert meet([Everywhere(), Window(3)]) == Window(3)
    assert meet([Causal(), Window(3)]) == Window(3)
    assert meet([Causal(), Sinks(3)]) == Causal() & Sinks(3)
    assert meet([Everywhere(), Everywhere()]) == Everywhere()


@pytest.mark.parametrize("make", [Window, Sinks, BlockwiseCausal])
@pytest.mark.parametrize("size", [0, -3, 2.5, True])
def test_sizes_below_one_are_refused_with_the_number(make, size):
    with pytest.raises(UsageError, match=f"{make.__name__}.*at least 1, got {size}"):
        make(size)
