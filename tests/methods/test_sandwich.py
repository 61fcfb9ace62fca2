"""Sandwich: published values, and float64 cosines at a million tokens (arXiv:2212.10356)."""

import numpy as np
import pytest
import torch

from lengthen.core import Shape, Tile, UsageError, build
from lengthen.methods.sandwich import Sandwich

STEPS = [0, 1, 2, 8, 64, 512, 1024]
HEAD_1 = [0.0, -1.446618505100517, -5.2019926306291, -17.133986219203656]
HEAD_1 += [-32.87181870225618, -47.96131719899895, -50.90834108623094]


@pytest.mark.parametrize("head", [1, 4, 8])
def test_bias_has_the_published_values(head):
    got = Sandwich(8).at(torch.tensor(STEPS, dtype=torch.float64))
    np.testing.assert_allclose(got[head - 1], np.array(HEAD_1) / head, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("channels", [2, 6, 128])
def test_bias_follows_the_formula_at_any_size_and_distance(heads, channels):
    distance = np.array([[-3.0, 0.5], [999_999.0, 1_000_000.0]])
    angle = distance[..., None] * 10_000.0 ** (-2 * np.arange(1, channels // 2 + 1) / channels)
    expected = (np.cos(angle).sum(-1) - channels / 2) / (8 * np.arange(1, heads + 1) / heads)[:, None, None]
    got = Sandwich(heads, channels).at(torch.tensor(distance))
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_float32_and_bfloat16_models_round_only_the_result():
    q, k = torch.tensor([[1_000_000]]), torch.tensor([[0, 1, 999_999]])
    exact = Sandwich(4)(Tile(q, k, torch.float64))
    got = Sandwich(4).bfloat16()(Tile(q, k, torch.float32))
    assert got.dtype == torch.float32
    np.testing.assert_allclose(got, exact, rtol=3e-7)


def test_odd_channels_are_refused_and_nothing_is_learned():
    assert not list(build("sandwich", Shape()).parameters())
    with pytest.raises(UsageError, match="must be even, got 7"):
        build("sandwich:channels=7", Shape())
