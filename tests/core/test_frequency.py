"""Geometric frequencies against published closed forms; what a rule says of logits; factors that are refused."""

import numpy as np
import pytest

from lengthen.core import FrequencyRule, Geometric, UsageError
from lengthen.core.frequency import require_factor


@pytest.mark.parametrize(
    ("base", "dim", "index", "value"),
    [
        (10_000.0, 64, 0, 1.0),
        (10_000.0, 64, 1, 0.7498942093324558),
        (10_000.0, 64, 31, 0.0001333521432163324),
        (500_000.0, 128, 63, 2.455140791131609e-06),
        (500_000.0, 128, 32, 0.001414213562373095),
        (10_000.0, 2, 0, 1.0),
    ],
)
def test_published_values(base, dim, index, value):
    theta = Geometric(base).inv_freq(dim)
    assert theta.dtype == np.float64 and theta.shape == (dim // 2,)
    assert theta[index] == pytest.approx(value, rel=1e-14)


def test_wavelengths_grow_by_one_ratio():
    theta = Geometric(10_000.0).inv_freq(64)
    np.testing.assert_allclose(theta[1:] / theta[:-1], 10_000 ** (-1 / 32), rtol=1e-13)


@pytest.mark.parametrize("dim", [7, 1, 0, -2])
def test_an_odd_size_is_refused_with_the_number(dim):
    with pytest.raises(UsageError, match=f"got {dim}"):
        Geometric().inv_freq(dim)


@pytest.mark.parametrize("base", [0.0, -1.0, float("nan")])
def test_a_base_that_is_no_positive_number_is_refused(base):
    with pytest.raises(UsageError, match=f"got {base}"):
        Geometric(base)


class Scaled(FrequencyRule):
    """Scales written down."""

    mscale, head_scale = 1.5, 2.0

    def inv_freq(self, dim):
        return np.ones(dim // 2)


def test_queries_and_keys_are_both_multiplied_and_the_head_once():
    assert Scaled().logit_multiplier == 1.5 * 1.5 * 2.0
    assert Geometric().logit_multiplier == 1.0


@pytest.mark.parametrize("factor", [0.25, 0.999])
def test_a_factor_below_one_is_refused_with_its_inverse(factor):
    with pytest.raises(UsageError, match=rf"'factor' of PI .* at least 1, got {factor}\. {1 / factor:g} makes"):
        require_factor("PI", factor)
    require_factor("PI", 1)


@pytest.mark.parametrize("factor", [0, -4.0, float("inf"), float("nan"), True, "4", None])
def test_a_factor_that_is_no_positive_number_is_refused(factor):
    with pytest.raises(UsageError, match="'factor' of PI must be a positive, finite number of trained lengths"):
        require_factor("PI", factor)
