"""NTK-aware and NTK-mixed scaling against their formulas in float64, and against published bases."""

import numpy as np
import pytest
from rope_reference import geometric

from lengthen.core import Shape, UsageError, build
from lengthen.methods.ntk import NTKAware, NTKMixed

BASES = {
    (64, 10_000.0, 2.0): 20452.228712025368,
    (64, 10_000.0, 4.0): 41829.36592889948,
    (128, 10_000.0, 2.0): 20221.261689737912,
    (128, 10_000.0, 4.0): 40889.94243248622,
    (128, 10_000.0, 8.0): 82684.62264056221,
    (128, 500_000.0, 16.0): 8359936.960660182,
}
"""b s^(R/(R-2)), definition 1 of arXiv:2309.00071."""


@pytest.mark.parametrize("case", BASES)
def test_it_is_rope_of_the_published_base(case):
    dim, base, factor = case
    np.testing.assert_allclose(NTKAware(factor, base).inv_freq(dim), geometric(BASES[case], dim), rtol=1e-13)


@pytest.mark.parametrize("dim", [4, 6, 64, 128])
@pytest.mark.parametrize("factor", [1.0, 3.0, 1e5])
def test_the_first_pair_is_kept_and_the_last_divided_exactly(dim, factor):
    theta = geometric(10_000.0, dim)
    for rule in (NTKAware(factor), NTKMixed(factor), NTKMixed(factor, power=2.0)):
        assert rule.inv_freq(dim)[-1] == pytest.approx(theta[-1] / factor, rel=1e-12)
    assert NTKAware(factor).inv_freq(dim)[0] == 1.0


def test_it_counts_the_turned_channels_and_not_the_head():
    scheme = build("ntk:factor=4,fraction=0.25", Shape(head_size=64))
    assert scheme.rotation.inv_freq[-1] == pytest.approx(10_000.0 ** (-14 / 16) / 4, rel=1e-12)


@pytest.mark.parametrize("power", [0.625, 0.75, 1.0])
def test_mixed_is_its_formula(power):
    a = np.log(12.0) / 32**power
    expected = [10_000.0 ** (-2 * i / 64) * np.exp(-a * (i + 1) ** power) for i in range(32)]
    np.testing.assert_allclose(NTKMixed(12.0, power=power).inv_freq(64), expected, rtol=1e-13)


def test_factor_one_is_rope_to_the_bit():
    for rule in (NTKAware(1.0, 5e5), NTKMixed(1.0, 5e5)):
        for dim in (2, 4, 96):
            assert np.array_equal(rule.inv_freq(dim), 5e5 ** (-np.arange(0, dim, 2) / dim))


def test_what_cannot_be_is_refused():
    with pytest.raises(UsageError, match=r"2 channels have one frequency. Turn at least 4 channels, or use pi"):
        NTKAware(4.0).inv_freq(2)
    with pytest.raises(UsageError, match=r"at least 1, got 0.5"):
        NTKAware(0.5)
    with pytest.raises(UsageError, match=r"'power' of NTK-mixed"):
        NTKMixed(2.0, power=0.0)
    with pytest.raises(UsageError, match=r"even, got 5"):
        NTKMixed(2.0).inv_freq(5)
