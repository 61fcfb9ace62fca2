"""Dual chunk attention against the published matrices, equations 2, 5 and 7, and attention computed pair by pair."""

import numpy as np
import pytest
import torch
from plane import attended, distances, rows

from lengthen.core import Shape, UsageError, build
from lengthen.methods.dual_chunk import ChunksBack

PAPER = rows(
    "0", "1 0", "2 1 0", "3 2 1 0", "4 3 2 1 0", "5 4 3 2 1 0", "6 5 4 3 2 1 0", "7 6 5 4 3 2 1 0", "8 7 6 5 4 3 2 1 0",
    "9 8 7 6 5 4 3 2 1 0", "9 8 7 6 5 4 4 3 2 1 0", "9 8 7 6 5 4 5 4 3 2 1 0", "9 8 7 6 5 4 6 5 4 3 2 1 0",
    "9 8 7 6 5 4 7 6 5 4 3 2 1 0", "9 8 7 6 5 4 8 7 6 5 4 3 2 1 0", "9 8 7 6 5 4 9 8 7 6 5 4 3 2 1 0",
    "9 8 7 6 5 4 9 8 7 6 5 4 4 3 2 1 0", "9 8 7 6 5 4 9 8 7 6 5 4 5 4 3 2 1 0",
)  # fmt: skip
"""c = 10, s = 6: figure 2 of the paper, and on to the third chunk."""
RELEASED = rows(
    "0", "1 0", "2 1 0", "3 2 1 0", "4 3 2 1 0", "5 4 3 2 1 0", "6 5 4 3 2 1 0", "7 6 5 4 3 2 1 0", "8 7 6 5 4 3 2 1 0",
    "9 8 7 6 5 4 3 2 1 0", "10 9 8 7 6 5 4 3 2 1 0", "10 9 8 7 6 5 5 4 3 2 1 0", "10 9 8 7 6 5 6 5 4 3 2 1 0",
    "10 9 8 7 6 5 7 6 5 4 3 2 1 0", "10 9 8 7 6 5 8 7 6 5 4 3 2 1 0", "10 9 8 7 6 5 9 8 7 6 5 4 3 2 1 0",
    "10 9 8 7 6 5 10 9 8 7 6 5 4 3 2 1 0", "10 9 8 7 6 5 10 9 8 7 6 5 5 4 3 2 1 0",
)  # fmt: skip
"""chunk_size 10, local_window 4: the authors' code."""


def test_the_published_matrices():
    np.testing.assert_array_equal(distances(build("dual_chunk:chunk=6,local=4"), 18), PAPER)
    np.testing.assert_array_equal(distances(build("dual_chunk:chunk=6,local=4,released=True"), 18), RELEASED)


@pytest.mark.parametrize(("s", "w"), [(1, 1), (6, 4), (5, 5), (7, 1)])
def test_equations_2_5_and_7(s, w):
    found, c = distances(build(f"dual_chunk:chunk={s},local={w}"), 4 * s + 3), s + w
    for i in range(len(found)):
        for j in range(i + 1):
            chunks, key = i // s - j // s, j % s
            query = {0: i % s, 1: min(s + i % s, c - 1)}.get(chunks, c - 1)
            assert found[i, j] == query - key


def test_defaults_follow_the_training_length():
    length = 32
    paper = distances(build("dual_chunk", Shape(train_length=length)), 3 * length)
    assert np.nanmax(paper) == length - 1
    released = distances(build("dual_chunk:released=True", Shape(train_length=length)), 3 * length)
    assert np.nanmax(released) == 24


@pytest.mark.parametrize("options", ["chunk=6,local=4", "chunk=5,local=2,released=True"])
@pytest.mark.parametrize("backend", ["dense", "blocked"])
@pytest.mark.parametrize("tokens", [1, 5, 6, 7, 33])
def test_attention_pair_by_pair(options, backend, tokens):
    np.testing.assert_allclose(*attended(build(f"dual_chunk:{options}"), tokens, backend), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("pattern", [ChunksBack(5, 0, 0), ChunksBack(5, 1, 1), ChunksBack(5, 2, None), ChunksBack(1, 1, 3)])
@pytest.mark.parametrize("keys", [1, 7, 23])
def test_intervals_and_spans_hold_what_is_seen(pattern, keys):
    i, j = torch.arange(23), torch.arange(keys)
    shown = pattern(i[:, None], j[None])
    ends = pattern.intervals(i, keys)
    assert torch.equal(((ends[..., :1] <= j) & (j < ends[..., 1:])).any(1), shown)
    for first, last in ((0, 0), (3, 9), (11, 22)):
        inside = torch.zeros(keys, dtype=torch.bool)
        for start, stop in pattern.spans(first, last, keys):
            inside[start:stop] = True
        assert not bool((shown[first : last + 1].any(0) & ~inside).any())


def test_keys_have_one_position_each_so_they_may_be_cached_turned():
    assert build("rope+dual_chunk").caches_turned_keys


def test_a_border_wider_than_a_chunk_is_refused():
    with pytest.raises(UsageError, match=r"one chunk of 4 tokens .*got 'local' 5"):
        build("dual_chunk:chunk=4,local=5")
