"""LongRoPE: given divisors, one set up to the trained length and another beyond it, as transformers at a fixed length."""

import numpy as np
import pytest
from rope_reference import CLOSE, geometric, theirs

from lengthen.core import Shape, UsageError, build
from lengthen.methods.longrope import Divided, LongRoPE, attention_factor_of, starting_factors


@pytest.mark.parametrize(
    ("factor", "original", "published"),
    [
        (1.0, 4096, 1.0),
        (0.5, 4096, 1.0),
        (8.0, 4096, 1.118033988749895),
        (32.0, 4096, 1.1902380714238083),
        (16.0, 8192, 1.1435437497937313),
        (512.0, 4096, 1.3228756555322954),
    ],
)
def test_published_attention_factors(factor, original, published):
    assert attention_factor_of(factor, original) == pytest.approx(published, rel=1e-14)


def factors(pairs: int, most: float) -> tuple[float, ...]:
    return tuple(np.linspace(1.0, most, pairs).tolist())


@pytest.mark.parametrize("tokens", [1, 1023, 1024, 1025, 100_000])
@pytest.mark.parametrize(("head", "share", "base"), [(2, 1.0, 1e4), (64, 1.0, 5e5), (80, 0.4, 1e4)])
@pytest.mark.parametrize("given", [{"factor": 8.0}, {}, {"factor": 8.0, "attention_factor": 1.3}])
def test_equal_to_transformers_at_a_fixed_length(tokens, head, share, base, given):
    dim = int(head * share)
    short, long = factors(dim // 2, 1.5), factors(dim // 2, 9.0)
    given = given | {"short_factor": list(short), "long_factor": list(long), "original_max_position_embeddings": 1024}
    expected = theirs("longrope", head_size=head, tokens=tokens, rope_theta=base, partial_rotary_factor=share, **given)
    # Without a factor, transformers takes max_position_embeddings (4096) over the original length.
    scale = given.get("attention_factor", attention_factor_of(given.get("factor", 4.0), 1024))
    rule = LongRoPE(short, long, 1024, base, scale).at(tokens)
    np.testing.assert_allclose(rule.inv_freq(dim), expected.inv_freq, **CLOSE)
    assert rule.mscale == pytest.approx(expected.mscale, rel=1e-14)


def test_each_frequency_is_divided_by_its_own_factor():
    found = Divided((1.0, 2.0, 3.5), 100.0).inv_freq(6)
    np.testing.assert_allclose(found, geometric(100.0, 6) / [1.0, 2.0, 3.5], rtol=1e-15)


def test_the_searchs_published_start():
    found = starting_factors(4.0, 2048, 64, 10_000.0)
    expected = [1.0] * 9 + [1 + 3 * n / 13 for n in range(1, 13)] + [4.0] * 11
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert expected[9] == pytest.approx(1.2307692307692306)


def test_the_method_takes_factors_and_is_settled_for_its_length():
    shape = Shape(head_size=6, train_length=64)
    spec = "longrope:factor={},short_factor=(1.0,1.1,1.2),long_factor=(2,3,4),base=100.0"
    theta = geometric(100.0, 6)
    np.testing.assert_allclose(build(spec.format(2), shape).rotation.inv_freq, theta / [2, 3, 4], rtol=1e-15)
    np.testing.assert_allclose(build(spec.format(1), shape).rotation.inv_freq, theta / [1.0, 1.1, 1.2], rtol=1e-15)
    default = build("longrope:factor=2", Shape(head_size=64, train_length=2048)).rotation
    expected = geometric(10_000.0, 64) / starting_factors(2.0, 2048, 64, 10_000.0)
    np.testing.assert_allclose(default.inv_freq, expected, rtol=1e-14)
    assert default.rule.mscale == pytest.approx(np.sqrt(1 + np.log(2) / np.log(2048)), rel=1e-14)


def test_what_cannot_be_is_refused():
    with pytest.raises(UsageError, match=r"64 turned channels are 32 pairs, got 3 factors"):
        Divided((1.0, 1.0, 1.0)).inv_freq(64)
    with pytest.raises(UsageError, match=r"2 short factors and 1 long ones"):
        LongRoPE((1.0, 1.0), (1.0,), 64)
    with pytest.raises(UsageError, match=r"'factors' of LongRoPE must be a positive"):
        Divided((1.0, 0.0))
    with pytest.raises(UsageError, match=r"at least 1, got 0"):
        LongRoPE((1.0,), (1.0,), 64).at(0)
    with pytest.raises(UsageError, match=r"at least 1, got 0.5"):
        build("longrope:factor=0.5")
