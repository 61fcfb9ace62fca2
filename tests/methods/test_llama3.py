"""Llama 3.1's scaling: published values, transformers, and its three regions by hand."""

import numpy as np
import pytest
from rope_reference import CLOSE, geometric, theirs

from lengthen.core import UsageError
from lengthen.methods.llama3 import Llama3

LLAMA_31 = {28: 0.003211445994752591, 29: 0.002166570763503359, 34: 0.0001785078127679964, 35: 9.556212353964683e-05}
"""Pairs about the ramp for 128 channels, base 500 000, factor 8, ends 1 and 4, 8192 tokens."""
LLAMA_32 = {15: 0.001290547928209264, 16: 0.00042955679655936815, 17: 9.70828780262767e-05}
"""The same for 64 channels and factor 32."""


def test_published_values():
    found = Llama3(8.0, 8192).inv_freq(128)
    for pair, value in LLAMA_31.items():
        assert found[pair] == pytest.approx(value, rel=1e-12)
    theta = geometric(500_000.0, 128)
    assert np.isclose(found, theta, rtol=1e-13).sum() == np.isclose(found, theta / 8, rtol=1e-13).sum() == 29
    found = Llama3(32.0, 8192).inv_freq(64)
    for pair, value in LLAMA_32.items():
        assert found[pair] == pytest.approx(value, rel=1e-12)


def test_three_regions_by_hand():
    """A trained length of 2 pi * 8 makes rotations 8 theta."""
    rule = Llama3(4.0, 50, base=16.0, low=1.0, high=4.0)
    for theta, found in zip(geometric(16.0, 8), rule.inv_freq(8), strict=True):
        rotations = 50 * theta / (2 * np.pi)
        share = min(max((rotations - 1) / 3, 0), 1)
        assert found == pytest.approx((1 - share) * theta / 4 + share * theta, rel=1e-13)


@pytest.mark.parametrize("factor", [1.0, 8, 1000.0])
@pytest.mark.parametrize(("low", "high"), [(1, 4), (0.5, 0.75), (2.0, 64.0)])
@pytest.mark.parametrize(("head", "share"), [(2, 1.0), (64, 1.0), (80, 0.4)])
@pytest.mark.parametrize("original", [128, 8192])
def test_equal_to_transformers(factor, low, high, head, share, original):
    given = {"factor": factor, "low_freq_factor": low, "high_freq_factor": high, "partial_rotary_factor": share}
    expected = theirs("llama3", head_size=head, maximum=131_072, original_max_position_embeddings=original, **given)
    found = Llama3(factor, original, 10_000.0, low, high)
    np.testing.assert_allclose(found.inv_freq(int(head * share)), expected.inv_freq, **CLOSE)
    assert found.logit_multiplier == expected.mscale


def test_factor_one_is_rope_to_the_bit():
    assert np.array_equal(Llama3(1.0, 8192).inv_freq(128), 500_000.0 ** (-np.arange(0, 128, 2) / 128))


def test_what_cannot_be_is_refused():
    with pytest.raises(UsageError, match=r"high is above low; got 1.0 and 4.0. Llama 3.1 has 4 and 1"):
        Llama3(8.0, 8192, low=4.0, high=1.0)
    with pytest.raises(UsageError, match=r"at least 1, got 0.125"):
        Llama3(0.125, 8192)
