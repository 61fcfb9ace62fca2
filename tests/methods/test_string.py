"""STRING against the published matrix, its definition, and attention computed pair by pair."""

import math

import numpy as np
import pytest
import torch
from plane import attended, distances, rows

from lengthen.core import Shape, UsageError, build


def test_the_published_matrix():
    expected = rows(
        "0", "1 0", "2 1 0", "1 2 1 0", "2 1 2 1 0", "3 2 1 2 1 0", "4 3 2 1 2 1 0", "5 4 3 2 1 2 1 0",
        "6 5 4 3 2 1 2 1 0",
    )  # fmt: skip
    np.testing.assert_array_equal(distances(build("string:shift=3,local=1"), 9), expected)


@pytest.mark.parametrize(("shift", "local"), [(1, 1), (7, 3), (10, 10)])
@pytest.mark.parametrize("backend", ["dense", "blocked"])
@pytest.mark.parametrize("tokens", [1, 7, 8, 33])
def test_attention_pair_by_pair(shift, local, backend, tokens):
    scheme = build(f"string:shift={shift},local={local}")
    np.testing.assert_allclose(*attended(scheme, tokens, backend), rtol=1e-12, atol=1e-12)


def test_distances_stay_below_the_training_length_up_to_its_reach():
    scheme = build("string", Shape(train_length=24))
    assert np.nanmax(distances(scheme, 24 + 8 - 2)) == 23


def test_the_released_factor_multiplies_logits_by_its_square():
    released = 0.1 * math.log(2) + 1
    scheme = build(f"string:factor={released}")
    assert scheme.temperature(torch.ones(1, 1, dtype=torch.float64)).item() == pytest.approx(1.1434, abs=5e-5)


def test_keys_may_be_cached_turned():
    assert build("rope+string").caches_turned_keys


def test_a_shift_that_would_raise_distances_is_refused():
    with pytest.raises(UsageError, match="got 8 above 7"):
        build("string:shift=7,local=8")
