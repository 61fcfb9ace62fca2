"""Self-Extend against the published matrix, equation 4, and attention computed pair by pair."""

import numpy as np
import pytest
from plane import attended, distances, rows

from lengthen.core import Shape, UsageError, build


def test_the_published_matrix():
    expected = rows(
        "0", "1 0", "2 1 0", "3 2 1 0", "4 3 2 1 0", "4 4 3 2 1 0", "5 5 4 3 2 1 0", "5 5 4 4 3 2 1 0",
        "6 6 5 5 4 3 2 1 0", "6 6 5 5 4 4 3 2 1 0",
    )  # fmt: skip
    np.testing.assert_array_equal(distances(build("self_extend:group=2,window=4"), 10), expected)


def equation_4(tokens: int, window: int, group: int) -> np.ndarray:
    square = np.full((tokens, tokens), np.nan)
    for i in range(tokens):
        for j in range(i + 1):
            square[i, j] = i - j if i - j < window else i // group - j // group + window - window // group
    return square


SIZES = [(1, 1), (1, 3), (4, 2), (7, 3), (6, 1), (5, 8)]


@pytest.mark.parametrize(("window", "group"), SIZES)
def test_equation_4(window, group):
    found = distances(build(f"self_extend:window={window},group={group}"), 50)
    np.testing.assert_array_equal(found, equation_4(50, window, group))


@pytest.mark.parametrize(("window", "group"), SIZES)
def test_no_distance_exceeds_the_training_length_within_the_promised_reach(window, group):
    length = 16
    reach = (length - window) * group + window
    found = distances(build(f"self_extend:window={window},group={group}", Shape(train_length=length)), reach)
    assert np.nanmax(found) <= length


@pytest.mark.parametrize(("window", "group"), [(4, 2), (7, 3), (1, 4)])
@pytest.mark.parametrize("backend", ["dense", "blocked"])
@pytest.mark.parametrize("tokens", [1, 4, 7, 8, 33])
def test_attention_pair_by_pair(window, group, backend, tokens):
    scheme = build(f"self_extend:window={window},group={group}")
    np.testing.assert_allclose(*attended(scheme, tokens, backend), rtol=1e-12, atol=1e-12)


def test_a_window_as_long_as_the_training_length_is_refused():
    with pytest.raises(UsageError, match="16 trained tokens, got 16"):
        build("self_extend:window=16", Shape(train_length=16))
    with pytest.raises(UsageError, match=r"'group' of self_extend .*got 0"):
        build("self_extend:group=0")
