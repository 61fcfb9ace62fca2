"""p-RoPE against its closed form, and told apart from partial rotary."""

import numpy as np
import pytest
import torch

from lengthen.core import Layout, Shape, UsageError, build
from lengthen.methods.p_rope import Proportional


def shape(head_size: int) -> Shape:
    return Shape(heads=1, groups=1, head_size=head_size, width=head_size, train_length=16)


def test_published_frequencies_differ_from_partial_rotary():
    np.testing.assert_allclose(Proportional(0.25).inv_freq(8), [1.0, 0, 0, 0], rtol=1e-14)
    np.testing.assert_allclose(Proportional(0.75).inv_freq(8), [1.0, 0.1, 0.01, 0], rtol=1e-14)
    partial = build("rope:fraction=0.75", shape(8)).rotation.inv_freq
    np.testing.assert_allclose(partial, [1.0, 0.046415888336127795, 0.0021544346900318843], rtol=1e-12)


@pytest.mark.parametrize(("p", "dim", "kept"), [(0.75, 64, 24), (0.25, 512, 64), (0.58, 100, 29), (0.3, 10, 1), (1.0, 2, 1)])
def test_the_share_of_pairs_is_rounded_down(p, dim, kept):
    theta = Proportional(p).inv_freq(dim)
    np.testing.assert_allclose(theta[:kept], 10_000.0 ** (-np.arange(kept) / (dim / 2)), rtol=1e-13)
    assert theta.shape == (dim // 2,) and not theta[kept:].any()


def test_pairs_run_over_the_whole_head_and_free_pairs_carry_no_position():
    x = np.random.default_rng(0).normal(size=(6, 8))
    turned = build("p_rope", shape(8)).turn_queries(torch.from_numpy(x)[None, None], Layout.plain(6))[0, 0].numpy()
    product = (x[:, :4] + 1j * x[:, 4:]) * np.exp(1j * np.arange(6)[:, None] * np.array([1.0, 0.1, 0.01, 0.0]))
    np.testing.assert_allclose(turned, np.concatenate((product.real, product.imag), 1), atol=1e-14)
    np.testing.assert_array_equal(turned[:, [3, 7]], x[:, [3, 7]])


def test_all_pairs_kept_is_rope():
    x = torch.randn(1, 1, 5, 8, dtype=torch.float64)
    turned = [build(s, shape(8)).turn_keys(x, Layout.plain(5)) for s in ("p_rope:p=1.0", "rope:interleaved=false")]
    torch.testing.assert_close(*turned, rtol=0, atol=0)


@pytest.mark.parametrize("p", [0.0, -0.5, 1.2, float("nan")])
def test_a_share_outside_0_1_is_refused(p):
    with pytest.raises(UsageError, match=f"got {p}"):
        Proportional(p)


def test_a_share_that_keeps_nothing_is_refused_with_the_way_out():
    with pytest.raises(UsageError, match=r"p = 0.1 keeps none of the 4 pairs of a head of 8. Use at least 0.25"):
        build("p_rope:p=0.1", shape(8))
    with pytest.raises(UsageError, match="even, got 7"):
        build("p_rope", shape(7))
    with pytest.raises(UsageError, match="got 0"):
        build("p_rope:base=0", shape(8))
