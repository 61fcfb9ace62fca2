"""Giraffe's power and truncated frequencies, one pair at a time, and the published table."""

from math import pi

import numpy as np
import pytest
from rope_reference import geometric

from lengthen.core import Shape, UsageError, build
from lengthen.methods.giraffe import Power, Truncated


def test_published_table_of_the_truncated_basis():
    """64 channels, 2048 tokens: pairs 0-20 kept, 21-27 hold 2 pi / (16 * 2048), 28-31 stop."""
    found = build("giraffe_truncated", Shape(head_size=64, train_length=2048)).rotation.inv_freq
    np.testing.assert_allclose(found[:21], geometric(10_000.0, 64)[:21], rtol=1e-14)
    np.testing.assert_allclose(found[21:28], 0.00019174759848570515, rtol=1e-14)
    assert not found[28:].any()


@pytest.mark.parametrize("original", [1, 7, 128, 1_000_000])
@pytest.mark.parametrize(("cut", "held"), [(1 / 8, 1 / 16), (0.5, 0.9), (1.0, 1.0)])
@pytest.mark.parametrize("dim", [2, 10, 64])
def test_truncated_one_pair_at_a_time(original, cut, held, dim):
    once = 2 * pi / original
    expected = [t if t >= once else held * once if t >= cut * once else 0.0 for t in geometric(500.0, dim)]
    np.testing.assert_allclose(Truncated(original, 500.0, cut, held).inv_freq(dim), expected, rtol=1e-14)


@pytest.mark.parametrize("power", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("dim", [2, 10, 64])
def test_power_one_pair_at_a_time(power, dim):
    expected = [500.0 ** (-2 * i / dim) * (1 - i / (dim / 2)) ** power for i in range(dim // 2)]
    np.testing.assert_allclose(Power(power, 500.0).inv_freq(dim), expected, rtol=1e-13)
    assert Power(power, 500.0).inv_freq(dim)[-1] == pytest.approx(expected[-1]) != 0


def test_what_cannot_be_is_refused():
    with pytest.raises(UsageError, match=r"'power' of Giraffe must be a positive"):
        Power(0.0)
    with pytest.raises(UsageError, match=r"'cut' of Giraffe counts turns of pairs that turn less than once, got 2.0"):
        Truncated(64, cut=2.0)
    with pytest.raises(UsageError, match=r"whole number of tokens"):
        Truncated(0)
