"""NTK-by-parts: four published versions of it, each by hand, one pair at a time."""

from math import ceil, floor, log, pi

import numpy as np
import pytest
from rope_reference import geometric

from lengthen.core import Shape, UsageError, build
from lengthen.methods.ntk_by_parts import NTKByParts, ThreeParts

PUBLISHED = {
    "deployed": [0.0706631081870968, 0.049745578766838564, 0.016873235982592550, 0.0009730085108210397],
    "paper": [0.06127860500791243, 0.037635342759940814, 0.009789265815082984, 0.000792921404744199],
    "pose": [0.06092890450826204, 0.03847598540776072],
    "original": [0.07498942093324558, 0.056234132519034905, 0.019793353300379957, 0.001125474857286817],
}
"""Pairs 9, 10, 13 and 20 for R = 64, base 10 000, L = 2048, s = 4."""


@pytest.mark.parametrize("version", PUBLISHED)
def test_published_values(version):
    found = build(f"ntk_by_parts:version={version}", Shape(head_size=64, train_length=2048)).rotation
    values = PUBLISHED[version]
    np.testing.assert_allclose(found.inv_freq[[9, 10, 13, 20][: len(values)]], values, rtol=1e-13)
    theta = geometric(10_000.0, 64)
    np.testing.assert_allclose(found.inv_freq[:9], theta[:9], rtol=1e-13)
    np.testing.assert_allclose(found.inv_freq[23:], theta[23:] / 4, rtol=1e-13)
    assert found.rule.logit_multiplier == 1.0


@pytest.mark.parametrize("factor", [1.0, 4.0, 100.0])
@pytest.mark.parametrize("dim", [2, 6, 64])
@pytest.mark.parametrize(("slow", "fast", "original"), [(1.0, 32.0, 2048), (0.25, 2.5, 128), (8.0, 8.5, 1_000_000)])
def test_the_papers_ramp_one_pair_at_a_time(factor, dim, slow, fast, original):
    expected = []
    for theta in geometric(10_000.0, dim):
        rotations = original / (2 * pi / theta)
        kept = 0 if rotations < slow else 1 if rotations > fast else (rotations - slow) / (fast - slow)
        expected.append((1 - kept) * theta / factor + kept * theta)
    found = NTKByParts(factor, original, fast=fast, slow=slow, ramp="paper").inv_freq(dim)
    np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.parametrize("factor", [1.0, 4.0, 100.0])
@pytest.mark.parametrize("dim", [4, 6, 64])
@pytest.mark.parametrize("original", [128, 2048, 1_000_000])
def test_three_parts_one_pair_at_a_time(factor, dim, original):
    def share(i, fast, slow):
        low, high = (dim * log(original / (2 * pi * r)) / (2 * log(10_000)) for r in (fast, slow))
        low, high = max(floor(low), 0), min(ceil(high), dim - 1)
        return min(max((i - low) / (high - low), 0), 1) if high > low else float(i > low)

    expected = []
    for i, theta in enumerate(geometric(10_000.0, dim)):
        ntk = theta * factor ** (-2 * i / (dim - 2))
        between = theta / factor * share(i, 1.25, 0.75) + ntk * (1 - share(i, 1.25, 0.75))
        expected.append(between * share(i, 16, 2) + theta * (1 - share(i, 16, 2)))
    np.testing.assert_allclose(ThreeParts(factor, original).inv_freq(dim), expected, rtol=1e-12)


def test_the_ramps_of_one_name_differ_by_44_percent():
    deployed, paper = (NTKByParts(4.0, 2048, ramp=r).inv_freq(64) for r in ("deployed", "paper"))
    assert (deployed / paper - 1).max() > 0.43 or (paper / deployed - 1).min() < -0.43


@pytest.mark.parametrize("ramp", ["deployed", "paper", "pose"])
@pytest.mark.parametrize("dim", [2, 4, 64, 96])
def test_factor_one_is_rope_to_the_bit(ramp, dim):
    rope = 10_000.0 ** (-np.arange(0, dim, 2) / dim)
    assert np.array_equal(NTKByParts(1.0, 2048, ramp=ramp).inv_freq(dim), rope)
    assert np.array_equal(ThreeParts(1.0, 2048).inv_freq(dim), rope)


def test_what_cannot_be_is_refused():
    with pytest.raises(UsageError, match=r"fast is above slow; got 1.0 and 32.0. The papers have 32 and 1"):
        NTKByParts(4.0, 2048, fast=1.0, slow=32.0, ramp="paper")
    with pytest.raises(UsageError, match=r"no ramp named 'papr'. Did you mean 'paper'"):
        build("ntk_by_parts:version=papr")
    with pytest.raises(UsageError, match=r"fall only where 'base' is above 1, got 1.0"):
        NTKByParts(4.0, 2048, base=1.0, ramp="deployed")
    with pytest.raises(UsageError, match=r"fall only where 'base' is above 1, got 0.5"):
        ThreeParts(4.0, 2048, base=0.5)
    with pytest.raises(UsageError, match=r"at least 1, got 0.25"):
        ThreeParts(0.25, 2048)
    with pytest.raises(UsageError, match=r"'slow' of NTK-by-parts"):
        NTKByParts(4.0, 2048, slow=0.0, ramp="paper")
