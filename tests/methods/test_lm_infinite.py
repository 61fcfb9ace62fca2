"""LM-Infinite against the published mask and distances, and attention computed pair by pair."""

import numpy as np
import pytest
from plane import attended, distances

from lengthen.core import Shape, UsageError, build

MASK = """
1000000000
1100000000
1110000000
1111000000
1111100000
1111110000
1101111000
1100111100
1100011110
1100001111
"""
"""Two first tokens and a window of four, ten tokens (the last visible distance is 3)."""


def test_the_published_mask_and_distances():
    found = distances(build("lm_infinite:sinks=2,window=4,limit=4"), 10)
    shown = np.array([[int(x) for x in row] for row in MASK.split()])
    np.testing.assert_array_equal(~np.isnan(found), shown.astype(bool))
    i = np.arange(10)
    apart = np.minimum(i[:, None] - i, 4)
    np.testing.assert_array_equal(found[shown == 1], apart[shown == 1])


@pytest.mark.parametrize(("sinks", "window", "limit"), [(1, 1, 1), (2, 4, 4), (3, 4, 9), (10, 2, 6), (4, 1, 20)])
def test_a_window_and_first_tokens_at_distances_up_to_the_limit(sinks, window, limit):
    found = distances(build(f"lm_infinite:sinks={sinks},window={window},limit={limit}"), 40)
    for i in range(40):
        for j in range(40):
            if 0 <= i - j < window or (j < sinks and j <= i):
                assert found[i, j] == min(i - j, limit)
            else:
                assert np.isnan(found[i, j])


@pytest.mark.parametrize("spec", ["lm_infinite:sinks=2,window=4,limit=4", "lm_infinite:sinks=3,window=2,limit=9"])
@pytest.mark.parametrize("backend", ["dense", "blocked"])
@pytest.mark.parametrize("tokens", [1, 4, 5, 33])
def test_attention_pair_by_pair(spec, backend, tokens):
    np.testing.assert_allclose(*attended(build(spec), tokens, backend), rtol=1e-12, atol=1e-12)


def test_the_training_length_is_window_and_limit():
    found = distances(build("lm_infinite", Shape(train_length=12)), 30)
    assert np.nanmax(found) == 12
    assert (~np.isnan(found[-1])).sum() == 12 + 10


def test_a_window_beyond_the_limit_is_refused():
    with pytest.raises(UsageError, match=r"caps distances at 4, .*got 5"):
        build("lm_infinite:window=5,limit=4")
