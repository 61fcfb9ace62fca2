"""T5 bias: the published bucket rule (arXiv:1910.10683, section 2.1, and its released code)."""

import math

import numpy as np
import pytest
import torch

from lengthen.core import Everywhere, Shape, Tile, UsageError, build
from lengthen.methods.t5 import T5Bias, first_distances

CAUSAL_32_128 = [*range(16), 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]
SIDE_32_128 = [*range(8), 8, 12, 16, 23, 32, 46, 64, 91]
CAUSAL_32_1024 = [*range(16), 16, 21, 27, 35, 46, 59, 77, 99, 128, 166, 216, 280, 363, 470, 609, 790]
"""First distance of each bucket, read from the released rule."""


def rule(rel: int, buckets: int, max_distance: int, bidirectional: bool) -> int:
    """The released rule, in float64, of rel = key - query."""
    offset, n = 0, max(-rel, 0)
    if bidirectional:
        buckets //= 2
        offset, n = (buckets if rel > 0 else 0), abs(rel)
    exact = buckets // 2
    if n < exact:
        return offset + n
    grown = exact + math.floor(math.log(n / exact) / math.log(max_distance / exact) * (buckets - exact) + 1e-12)
    return offset + min(grown, buckets - 1)


@pytest.mark.parametrize(
    ("buckets", "most", "first"), [(32, 128, CAUSAL_32_128), (16, 128, SIDE_32_128), (32, 1024, CAUSAL_32_1024)]
)
def test_buckets_begin_where_they_are_published(buckets, most, first):
    np.testing.assert_array_equal(np.ceil(first_distances(buckets, most)), first)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("buckets", "most"), [(32, 128), (32, 1024), (64, 512), (6, 4), (10, 77)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_buckets_follow_the_rule_at_every_distance(bidirectional, buckets, most, dtype):
    distance = torch.cat((torch.arange(-2000, 2001), torch.tensor([10**6, -(10**6)])))
    got = T5Bias(1, 8, buckets, most, bidirectional).bucket(distance.to(dtype))
    expected = [rule(-d, buckets, most, bidirectional) for d in distance.tolist()]
    np.testing.assert_array_equal(got, expected)


def test_future_keys_share_bucket_zero_in_causal_models_and_have_their_own_otherwise():
    future = torch.tensor([-1.0, -5.0, -8.0, -12.0, -100.0])
    assert T5Bias(1, 8).bucket(future).tolist() == [0] * 5
    assert T5Bias(1, 8, bidirectional=True).bucket(future).tolist() == [17, 21, 24, 25, 31]


def test_real_distances_fall_into_the_bucket_that_holds_them():
    distance = torch.tensor([0.0, 0.99, 15.99, 16.0, 18.2, 18.4, 31.99, 32.0, 1e9])
    boundary = 16 * 8 ** (1 / 16)
    assert 18.2 < boundary < 18.4
    assert T5Bias(1, 8).bucket(distance).tolist() == [0, 0, 15, 16, 16, 17, 21, 21, 31]


def test_bias_is_the_gain_times_the_table_and_every_read_entry_learns():
    term = T5Bias(2, 8, gain=3.0).double()
    q, k = torch.tensor([[40, 41]]), torch.tensor([[0, 40, 41]])
    got = term(Tile(q, k, torch.float64))
    index = np.array([[23, 0, 0], [23, 1, 0]])
    np.testing.assert_allclose(got[0].detach(), 3 * term.table.detach().numpy()[:, index], rtol=1e-15)
    got.sum().backward()
    expected = np.zeros((2, 32))
    np.add.at(expected, (slice(None), index), 3.0)
    np.testing.assert_array_equal(term.table.grad, expected)


def test_initial_bias_has_the_size_of_hugging_faces_whatever_the_gain():
    torch.manual_seed(0)
    for gain in (None, 1.0, 7.0):
        term = build(f"t5:gain={gain}", Shape(heads=64, groups=64, head_size=16, width=256)).terms[0]
        bias = term.at(torch.tensor(CAUSAL_32_128).float()).detach()
        assert bias.shape == (64, 32) and float(bias.std()) == pytest.approx(256**-0.5, rel=0.05)


def test_distances_stay_exact_when_the_model_is_bfloat16():
    term = T5Bias(1, 8, 64, 4096).bfloat16()
    q, k = torch.tensor([[1_000_999]]), torch.tensor([[1_000_000 + 999 - d for d in (257, 258, 300, 1023)]])
    got = term(Tile(q, k, torch.float32))[0, 0, 0].detach()
    expected = [float(term.table.detach()[0, rule(-d, 64, 4096, False)]) for d in (257, 258, 300, 1023)]
    assert got.dtype == torch.float32 and got.tolist() == expected


def test_bidirectional_sees_everything():
    assert build("t5:bidirectional=True", Shape()).pattern == Everywhere()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("t5:buckets=1", "at least 2, got 1"),
        ("t5:buckets=33,bidirectional=True", "even, got 33"),
        ("t5:max_distance=16", "exceed the 16 distances.*got 16"),
        ("t5:gain=-1.0", "positive, finite number.*got -1.0"),
    ],
)
def test_impossible_settings_are_refused_with_both_numbers(spec, words):
    with pytest.raises(UsageError, match=words):
        build(spec, Shape())
