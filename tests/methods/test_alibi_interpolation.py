"""ALiBi interpolation: slopes over the factor, at any distance."""

import numpy as np
import pytest
import torch

from lengthen.core import Shape, UsageError, build

SLOPES = {4: [1 / 4, 1 / 16, 1 / 64, 1 / 256], 6: [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]}


@pytest.mark.parametrize("heads", SLOPES)
@pytest.mark.parametrize("factor", [1.0, 1.5, 4.0, 8.0])
def test_biases_are_those_of_distances_that_many_times_as_short(heads, factor):
    scheme = build(f"alibi_interpolation:factor={factor}", Shape(heads=heads, groups=heads))
    distance = np.array([0, 1, 2, 5, 127, 128, 1e6])
    found = scheme.terms[0].at(torch.from_numpy(distance)).numpy()
    np.testing.assert_allclose(found, -np.array(SLOPES[heads])[:, None] * distance / factor, rtol=1e-15)
    assert scheme.relative


def test_up_to_the_target_no_bias_leaves_the_trained_range():
    shape = Shape(train_length=128)
    least = build("alibi", shape).terms[0].at(torch.tensor(127.0, dtype=torch.float64))
    far = build("alibi_interpolation:factor=4", shape).terms[0].at(torch.tensor(4 * 127.0, dtype=torch.float64))
    torch.testing.assert_close(far, least, rtol=1e-15, atol=0)


def test_a_factor_below_one_is_refused():
    with pytest.raises(UsageError, match=r"at least 1, got 0\.5"):
        build("alibi_interpolation:factor=0.5")
