"""Dynamic NTK: published bases, transformers at fixed lengths, and that a settled rule never changes."""

import numpy as np
import pytest
from rope_reference import CLOSE, geometric, theirs

from lengthen.core import Shape, UsageError, build
from lengthen.methods.dynamic_ntk import DynamicNTK

BASES = {
    (1.0, 1024): 10_000.0,
    (1.0, 2048): 10_000.0,
    (1.0, 2049): 10005.040362269476,
    (1.0, 4096): 20452.228712025368,
    (1.0, 8192): 41829.36592889948,
    (2.0, 1024): 10_000.0,
    (2.0, 2049): 10010.080803891618,
    (2.0, 4096): 31082.236667168814,
    (2.0, 8192): 74534.83031811893,
    (4.0, 2049): 10020.161925044107,
    (4.0, 8192): 141213.75739786727,
}
"""(g, T) -> b (g T/L - (g - 1))^(R/(R-2)) for R = 64, L = 2048."""


@pytest.mark.parametrize("case", BASES)
def test_published_bases(case):
    growth, tokens = case
    found = DynamicNTK(2048, growth).at(tokens).inv_freq(64)
    np.testing.assert_allclose(found, geometric(BASES[case], 64), rtol=1e-13)


def test_published_frequencies():
    expected = [1.0, 0.06933612743506347, 0.004807498567691361, 0.0003333333333333334]
    np.testing.assert_allclose(DynamicNTK(2048, 2.0).at(4096).inv_freq(8), expected, rtol=1e-14)


@pytest.mark.parametrize("growth", [1, 2.0, 8.0])
@pytest.mark.parametrize("tokens", [1, 4095, 4096, 4097, 16_384, 1_000_000])
@pytest.mark.parametrize(("head", "share", "base"), [(4, 1.0, 1e4), (64, 1.0, 5e5), (80, 0.4, 1e4)])
def test_equal_to_transformers_at_a_fixed_length(growth, tokens, head, share, base):
    expected = theirs("dynamic", head_size=head, tokens=tokens, factor=growth, rope_theta=base, partial_rotary_factor=share)
    found = DynamicNTK(4096, growth, base).at(tokens)
    np.testing.assert_allclose(found.inv_freq(int(head * share)), expected.inv_freq, **CLOSE)
    assert found.logit_multiplier == expected.mscale


def test_up_to_the_trained_length_no_bit_changes_whatever_came_before():
    rule, rope = DynamicNTK(4096, 4.0), geometric(10_000.0, 64)
    rule.at(100_000).inv_freq(64)
    for tokens in (1, 4095, 4096):
        np.testing.assert_allclose(rule.at(tokens).inv_freq(64), rope, rtol=1e-15)
    assert rule.original == 4096


def test_the_method_is_settled_for_its_factor():
    found = build("dynamic_ntk:factor=4,growth=2", Shape(head_size=64, train_length=2048)).rotation.inv_freq
    np.testing.assert_allclose(found, geometric(BASES[2.0, 8192], 64), rtol=1e-13)
    inside = build("dynamic_ntk:factor=1,growth=2", Shape(head_size=64, train_length=2048)).rotation.inv_freq
    np.testing.assert_allclose(inside, geometric(10_000.0, 64), rtol=1e-15)


def test_what_cannot_be_is_refused():
    with pytest.raises(UsageError, match=r"'original' of DynamicNTK must be a whole number of tokens"):
        DynamicNTK(0)
    with pytest.raises(UsageError, match=r"'tokens' of DynamicNTK must be a whole number of tokens, at least 1, got 0"):
        DynamicNTK(8).at(0)
    with pytest.raises(UsageError, match=r"at least 1, got 0.5"):
        DynamicNTK(8, 0.5)
    with pytest.raises(UsageError, match=r"'factor' of dynamic_ntk .* at least 1, got 0.5"):
        build("dynamic_ntk:factor=0.5")
