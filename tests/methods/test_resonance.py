"""Resonance RoPE: published wavelengths, and angles that return exactly."""

import numpy as np
import pytest

from lengthen.core import FrequencyRule, Geometric, Shape, build
from lengthen.methods.ntk_by_parts import NTKByParts
from lengthen.methods.p_rope import Proportional
from lengthen.methods.resonance import Resonance
from lengthen.methods.yarn import YaRN

PUBLISHED = [6, 8, 11, 15, 20, 26, 35, 47, 63, 84, 112, 149, 199, 265, 353, 471, 628, 838, 1117, 1490, 1987, 2650]
"""Wavelengths in tokens of the first pairs of 64 channels, base 10 000."""


class Written(FrequencyRule):
    """Frequencies written down."""

    def __init__(self, *values: float):
        self.values = values

    def inv_freq(self, dim):
        return np.array(self.values)


def test_published_wavelengths():
    found = build("resonance", Shape(head_size=64)).rotation.inv_freq
    np.testing.assert_allclose(2 * np.pi / found[:22], PUBLISHED, rtol=1e-14)
    assert 2 * np.pi / found[31] == pytest.approx(47117, rel=1e-14)


@pytest.mark.parametrize("rule", [Geometric(), YaRN(NTKByParts(8.0, 2048, ramp="deployed")), Proportional(0.5)])
def test_every_pair_returns_after_a_whole_number_of_tokens_near_its_own(rule):
    theta, found = rule.inv_freq(64), Resonance(rule).inv_freq(64)
    assert np.array_equal(found == 0, theta == 0)
    turning = theta > 0
    wavelength = 2 * np.pi / found[turning]
    np.testing.assert_allclose(wavelength, np.round(wavelength), rtol=1e-14)
    assert (abs(wavelength - 2 * np.pi / theta[turning]) <= 0.5 + 1e-9).all()
    angles = found[turning] * np.round(wavelength)
    np.testing.assert_allclose(np.cos(angles), 1, atol=1e-14)
    assert Resonance(rule).logit_multiplier == rule.logit_multiplier


def test_a_wavelength_is_at_least_a_token():
    np.testing.assert_allclose(Resonance(Written(100.0, 4.0, 0.0)).inv_freq(6), [2 * np.pi, np.pi, 0.0], rtol=1e-15)


def test_beyond_the_trained_length_it_rounds_yarn():
    scheme = build("resonance:factor=4", Shape(head_size=64, train_length=2048))
    yarn = build("yarn:factor=4", Shape(head_size=64, train_length=2048))
    expected = 2 * np.pi / np.round(2 * np.pi / yarn.rotation.inv_freq)
    np.testing.assert_allclose(scheme.rotation.inv_freq, expected, rtol=1e-14)
    assert scheme.rotation.rule.mscale == pytest.approx(0.1 * np.log(4) + 1)
