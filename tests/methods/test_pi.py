"""Position interpolation: against its definition on positions, and against transformers."""

import numpy as np
import pytest
import torch
from rope_reference import CLOSE, geometric, theirs

from lengthen.core import Coordinates, Geometric, Layout, Shape, UsageError, build
from lengthen.methods.ntk_by_parts import NTKByParts
from lengthen.methods.p_rope import Proportional
from lengthen.methods.pi import Interpolated
from lengthen.methods.yarn import YaRN


def turned(spec: str, x: np.ndarray, position: float) -> np.ndarray:
    """A row of channels, turned by a scheme at a position."""
    scheme = build(spec, Shape(heads=1, groups=1, head_size=len(x), width=len(x)))
    line = Coordinates(torch.zeros(1, 1, dtype=torch.long), torch.tensor([[position]], dtype=torch.float64))
    return scheme.turn_queries(torch.from_numpy(x)[None, None, None], Layout(line, line))[0, 0, 0].numpy()


@pytest.mark.parametrize("factor", [1.0, 2.5, 8.0, 1000.0])
def test_it_is_rope_at_positions_divided_by_the_factor(factor):
    x = np.random.default_rng(0).normal(size=8)
    for position in (0.0, 1.0, 8191.0, 1e6):
        np.testing.assert_allclose(turned(f"pi:factor={factor}", x, position), turned("rope", x, position / factor), atol=1e-9)


@pytest.mark.parametrize("base", [1.5, 1e4, 1e6])
@pytest.mark.parametrize("factor", [1, 4.0, 1e6])
@pytest.mark.parametrize(("head", "share"), [(2, 1.0), (64, 1.0), (80, 0.4), (128, 0.25)])
def test_equal_to_transformers(base, factor, head, share):
    expected = theirs("linear", head_size=head, factor=factor, rope_theta=base, partial_rotary_factor=share)
    rule = Interpolated(factor, Geometric(base))
    np.testing.assert_allclose(rule.inv_freq(int(head * share)), expected.inv_freq, **CLOSE)
    assert rule.logit_multiplier == expected.mscale == 1.0


@pytest.mark.parametrize(("p", "factor"), [(0.25, 1.0), (0.75, 8.0), (1.0, 2.0)])
def test_over_the_highest_frequencies_it_is_transformers_proportional(p, factor):
    expected = theirs("proportional", head_size=16, factor=factor, partial_rotary_factor=p)
    rule = Interpolated(factor, Proportional(p))
    np.testing.assert_allclose(rule.inv_freq(16), expected.inv_freq, **CLOSE)
    by_hand = geometric(10_000.0, 16) / factor
    by_hand[int(p * 8) :] = 0
    np.testing.assert_allclose(rule.inv_freq(16), by_hand, rtol=1e-14)


def test_factor_one_changes_no_bit_and_scales_are_kept():
    assert np.array_equal(Interpolated(1.0, Geometric(5e5)).inv_freq(128), Geometric(5e5).inv_freq(128))
    inner = YaRN(NTKByParts(8.0, 2048, ramp="paper"), head_scale=1.5)
    outer = Interpolated(2.0, inner)
    assert outer.mscale == pytest.approx(0.1 * np.log(8) + 1)
    assert outer.logit_multiplier == pytest.approx((0.1 * np.log(8) + 1) ** 2 * 1.5)


@pytest.mark.parametrize("factor", [0.25, 0, -1.0])
def test_a_factor_that_is_the_inverse_is_refused(factor):
    with pytest.raises(UsageError, match=r"factor"):
        build(f"pi:factor={factor}")
    with pytest.raises(UsageError, match=r"new length over the trained one, so it is at least 1, got 0.25. 4 makes"):
        Interpolated(0.25, Geometric())
