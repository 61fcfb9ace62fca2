"""CAPE 2021: (p + Delta + eps) * lambda in training, p in evaluation."""

import math

import numpy as np
import pytest
import torch

from lengthen.core import Shape, UsageError, build
from lengthen.methods.cape import Augment

IDX, TOKENS = torch.arange(40)[None], torch.zeros(3000, 40, dtype=torch.long)


def drawn(shift, local, scale):
    torch.manual_seed(0)
    return Augment(shift, local, scale).train()(IDX, TOKENS).numpy()


def assert_uniform(sample, least, most):
    """All inside, the ends reached within 1%, mean and variance those of U(least, most) within five standard errors."""
    width, n = most - least, sample.size
    assert least <= sample.min() < least + 0.01 * width and most - 0.01 * width < sample.max() <= most
    assert abs(sample.mean() - (least + most) / 2) < 5 * width / math.sqrt(12 * n)
    assert abs(sample.var() - width**2 / 12) < 5 * width**2 / math.sqrt(180 * n)


def test_global_shift_is_uniform_and_one_per_row():
    moved = drawn(5.0, 0.0, 1.0) - np.arange(40)
    assert np.ptp(moved, axis=1).max() < 1e-12
    assert_uniform(moved[:, 0], -5.0, 5.0)


def test_local_shift_is_uniform_per_token_and_keeps_the_order():
    pos = drawn(0.0, 0.5, 1.0)
    jitter = pos - np.arange(40)
    assert_uniform(jitter, -0.5, 0.5)
    assert abs(np.corrcoef(jitter[:, 0], jitter[:, 1])[0, 1]) < 5 / math.sqrt(3000)
    assert (np.diff(pos, axis=1) > 0).all()


def test_scale_is_log_uniform_and_multiplies_after_the_shift():
    pos = drawn(0.0, 0.0, 1.5)
    stretch = pos[:, 1:] / np.arange(1, 40)
    assert np.ptp(stretch, axis=1).max() < 1e-12
    assert_uniform(np.log(stretch[:, 0]), -math.log(1.5), math.log(1.5))
    both = drawn(5.0, 0.0, 1.5)
    slope = np.diff(both, axis=1)[:, 0]
    assert_uniform(both[:, 0] / slope, -5.0, 5.0)


def test_evaluation_is_plain_and_draws_nothing():
    scheme = build("cape", Shape()).eval()
    state = torch.get_rng_state()
    attention, embedding = scheme.position(IDX)
    assert torch.equal(torch.get_rng_state(), state)
    assert attention[0].tolist() == embedding[0].tolist() == list(range(40))


def test_sinusoids_of_real_positions():
    scheme = build("cape", Shape(width=8)).train()
    torch.manual_seed(1)
    pos = scheme.position(IDX, TOKENS[:4])[1]
    got = scheme.embedding(torch.zeros(4, 40, 8, dtype=torch.float64), pos).numpy()
    angle = pos.numpy()[..., None] / 10_000 ** (np.arange(0, 8, 2) / 8)
    np.testing.assert_allclose(got[..., 0::2], np.sin(angle), atol=1e-13)
    np.testing.assert_allclose(got[..., 1::2], np.cos(angle), atol=1e-13)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("shift=-1", "'shift'.*at least 0.*got -1"),
        ("local=0.6", "'local'.*between 0 and 0.5, got 0.6"),
        ("scale=0.9", "'scale'.*at least 1.*got 0.9"),
        ("scale=1e999", "'scale'.*finite.*got inf"),
        ("shift=wide", "got 'wide'"),
    ],
)
def test_bad_options_are_refused(option, said):
    with pytest.raises(UsageError, match=said):
        build(f"cape:{option}", Shape())
