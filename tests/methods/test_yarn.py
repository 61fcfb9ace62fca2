"""YaRN: published values, transformers over its parameters, and the one number that multiplies logits."""

import itertools
import math

import numpy as np
import pytest
import torch
from rope_reference import geometric, theirs

from lengthen.core import Layout, Shape, UsageError, build
from lengthen.methods.ntk_by_parts import NTKByParts
from lengthen.methods.yarn import YaRN, attention_factor_of, head_scale_of

SHAPE = Shape(heads=1, groups=1, head_size=64, width=64, train_length=2048)


def test_published_values_of_gpt_oss():
    """64 channels, base 150 000, 4096 tokens, factor 32, ends not rounded: pairs about the ramp from 8.09 to 17.40."""
    rule = YaRN(NTKByParts(32.0, 4096, 150_000.0, truncate=False, ramp="deployed"))
    expected = [0.050813274815461475, 0.03170569618466377, 0.01933500112654036, 0.011592049256286924, 0.006794959489732219]
    np.testing.assert_allclose(rule.inv_freq(64)[8:13], expected, rtol=1e-12)
    assert rule.mscale == pytest.approx(1.3465735902799727, rel=1e-14)
    assert rule.logit_multiplier == pytest.approx(1.3465735902799727**2, rel=1e-14)


@pytest.mark.parametrize(
    ("given", "published"),
    [
        ((1.0,), 1.0),
        ((4.0,), 1.138629436111989),
        ((40.0,), 1.3688879454113936),
        ((128.0,), 1.4852030263919618),
        ((40.0, 0.707, 0.707), 1.0),
        ((40.0, 1.0, 0.0), 1.3688879454113936),
        ((0.5, 1.0, 2.0), 1.0),
    ],
)
def test_published_attention_factors(given, published):
    assert attention_factor_of(*given) == pytest.approx(published, rel=1e-14)


def test_published_softmax_scales_of_deepseek():
    assert head_scale_of(40.0, 0.707) == pytest.approx(1.5896261651208736, rel=1e-14)
    assert head_scale_of(40.0, 1.0) == pytest.approx(1.8738542070926265, rel=1e-14)
    assert head_scale_of(40.0, None) == head_scale_of(40.0, 0.0) == head_scale_of(1.0, 1.0) == 1.0


@pytest.mark.parametrize("factor", [1.0, 4, 1000.0])
@pytest.mark.parametrize(("head", "share", "base"), [(2, 1.0, 1e4), (6, 1.0, 1.5), (64, 1.0, 1e6), (80, 0.4, 1e4)])
@pytest.mark.parametrize(("fast", "slow"), [(32, 1), (2.5, 0.25), (128.0, 2.0)])
@pytest.mark.parametrize("original", [64, 2048, 1_000_000])
@pytest.mark.parametrize("truncate", [True, False])
def test_equal_to_transformers(factor, head, share, base, fast, slow, original, truncate):
    given = {"factor": factor, "beta_fast": fast, "beta_slow": slow, "truncate": truncate, "rope_theta": base}
    given |= {"original_max_position_embeddings": original, "partial_rotary_factor": share}
    expected = theirs("yarn", head_size=head, maximum=int(factor * original), **given)
    rule = YaRN(NTKByParts(factor, original, base, fast, slow, truncate, ramp="deployed"))
    dim = int(head * share)
    # transformers blends in float32 by 1 - share, which has lost up to 2^-23 of the trained frequency near share = 1.
    rounding = 3e-6 * expected.inv_freq + 2**-23 * geometric(base, dim)
    assert (abs(rule.inv_freq(dim) - expected.inv_freq) < rounding).all()
    assert rule.mscale == pytest.approx(expected.mscale, rel=1e-14)


WEIGHTS = [None, 0, 0.707, 1.0, 2.0]


@pytest.mark.parametrize(("mscale", "all_dim"), list(itertools.product(WEIGHTS, WEIGHTS)))
@pytest.mark.parametrize("factor", [1.0, 4.0, 40.0])
def test_the_attention_factor_is_transformers_for_all_weights(factor, mscale, all_dim):
    given = {"mscale": mscale, "mscale_all_dim": all_dim}
    given = {name: value for name, value in given.items() if value is not None}
    expected = theirs("yarn", head_size=64, factor=factor, original_max_position_embeddings=1024, **given)
    assert attention_factor_of(factor, mscale, all_dim) == pytest.approx(expected.mscale, rel=1e-14)


@pytest.mark.parametrize("final", [0.5, 1.0, 3.0])
def test_an_attention_factor_is_final_as_in_transformers(final):
    expected = theirs("yarn", head_size=64, factor=4.0, original_max_position_embeddings=1024, attention_factor=final)
    scheme = build(f"yarn:attention_factor={final}", SHAPE)
    assert scheme.rotation.rule.mscale == expected.mscale == final


def score(spec: str) -> float:
    """q . k / sqrt(D) of equal rows of ones at position 0, where nothing turns: the multiplier times sqrt(D)."""
    x = torch.ones(1, 1, 1, 64, dtype=torch.float64)
    return float(build(spec, SHAPE).plan(x, x, x, Layout.plain(1)).logits()) / math.sqrt(64)


def test_logits_grow_by_the_multiplier_once():
    m = 0.1 * math.log(4) + 1
    assert score("rope") == pytest.approx(1.0)
    assert score("yarn:factor=4") == pytest.approx(m**2, rel=1e-6)
    assert score("yarn:factor=4,attention_factor=1.0") == pytest.approx(1.0, rel=1e-6)
    assert score("yarn:factor=4,mscale=1.0,mscale_all_dim=1.0") == pytest.approx(1.0, rel=1e-6)
    assert score("yarn:factor=4,mscale=1.0,mscale_all_dim=1.0,deepseek=true") == pytest.approx(m**2, rel=1e-6)
    assert score("yarn:factor=4,mscale=2.0,mscale_all_dim=1.0") == pytest.approx(((0.2 * math.log(4) + 1) / m) ** 2, rel=1e-6)


def test_of_a_partly_turned_head_only_that_part_grows_unless_it_is_the_softmax_scale():
    m = 0.1 * math.log(4) + 1
    assert score("yarn:factor=4,fraction=0.25") == pytest.approx(0.25 * m**2 + 0.75, rel=1e-6)
    whole = "yarn:factor=4,fraction=0.25,mscale=1.0,mscale_all_dim=1.0,deepseek=true"
    assert score(whole) == pytest.approx(m**2, rel=1e-6)


def test_the_rule_says_the_multiplier_that_the_scheme_has():
    rule = YaRN(NTKByParts(4.0, 2048, ramp="deployed"), 1.5, head_scale=2.0)
    assert rule.logit_multiplier == 4.5


def test_the_trained_length_is_the_models_and_factor_one_is_rope_to_the_bit():
    found = build("yarn:factor=4", SHAPE).rotation.inv_freq
    assert found[9] == pytest.approx(0.0706631081870968, rel=1e-13)
    one = build("yarn:factor=1", SHAPE).rotation
    np.testing.assert_allclose(one.inv_freq, geometric(10_000.0, 64), rtol=1e-15)
    assert one.rule.logit_multiplier == 1.0


def test_what_cannot_be_is_refused():
    with pytest.raises(UsageError, match=r"attention_factor \(1.2\) or what it is computed from .* not both"):
        build("yarn:attention_factor=1.2,mscale=1.0")
    with pytest.raises(UsageError, match=r"'mscale' of YaRN must be a positive"):
        YaRN(NTKByParts(4.0, 2048, ramp="deployed"), 0.0)
    with pytest.raises(UsageError, match=r"at least 1, got 0.25"):
        build("yarn:factor=0.25")
