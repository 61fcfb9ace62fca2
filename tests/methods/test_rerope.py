"""ReRoPE and leaky ReRoPE against the published matrices, and attention computed pair by pair."""

import numpy as np
import pytest
from plane import attended, distances, rows

from lengthen.core import Shape, UsageError, build


def test_the_published_matrix():
    expected = rows(
        "0", "1 0", "2 1 0", "3 2 1 0", "4 3 2 1 0", "5 4 3 2 1 0", "6 5 4 3 2 1 0", "6 6 5 4 3 2 1 0",
        "6 6 6 5 4 3 2 1 0", "6 6 6 6 5 4 3 2 1 0",
    )  # fmt: skip
    np.testing.assert_array_equal(distances(build("rerope:window=6"), 10), expected)


def test_the_published_matrix_of_the_leaky_form():
    expected = rows(
        "0", "1 0", "2 1 0", "3 2 1 0", "4 3 2 1 0", "4.25 4 3 2 1 0", "4.5 4.25 4 3 2 1 0", "4.75 4.5 4.25 4 3 2 1 0",
        "5 4.75 4.5 4.25 4 3 2 1 0", "5.25 5 4.75 4.5 4.25 4 3 2 1 0",
    )  # fmt: skip
    np.testing.assert_array_equal(distances(build("leaky_rerope:window=4,factor=4"), 10), expected)


@pytest.mark.parametrize("window", [1, 2, 9])
def test_distances_stop_at_the_window(window):
    i = np.arange(30)
    expected = np.where(i[:, None] >= i, np.minimum(i[:, None] - i, window).astype(float), np.nan)
    np.testing.assert_array_equal(distances(build(f"rerope:window={window}"), 30), expected)


@pytest.mark.parametrize("spec", ["rerope:window=1", "rerope:window=5", "leaky_rerope:window=5,factor=2.5"])
@pytest.mark.parametrize("backend", ["dense", "blocked"])
@pytest.mark.parametrize("tokens", [1, 5, 6, 33])
def test_attention_pair_by_pair(spec, backend, tokens):
    np.testing.assert_allclose(*attended(build(spec), tokens, backend), rtol=1e-12, atol=1e-12)


def test_the_window_is_a_quarter_of_the_training_length():
    assert np.nanmax(distances(build("rerope", Shape(train_length=40)), 60)) == 10


def test_keys_stand_apart_in_the_two_branches_so_they_are_cached_raw():
    assert not build("rope+rerope").caches_turned_keys


@pytest.mark.parametrize(
    ("spec", "message"),
    [("rerope:window=0", "'window' of rerope .*got 0"), ("leaky_rerope:factor=0", "'factor' of leaky_rerope .*got 0")],
)
def test_sizes_below_one_are_refused(spec, message):
    with pytest.raises(UsageError, match=message):
        build(spec)
