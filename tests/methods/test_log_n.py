"""log-n scaling against its closed form."""

import math

import numpy as np
import pytest
import torch

from lengthen.backends import attend
from lengthen.core import Coordinates, Layout, Shape, UsageError, build, order
from lengthen.methods.log_n import LogN


def test_published_values_with_clipping():
    seen = torch.tensor([[1, 4096, 8192, 16384, 131072]], dtype=torch.float64)
    expected = [1, 1, 1.0833333333333333, 1.1666666666666667, 1.4166666666666667]
    np.testing.assert_allclose(LogN(4096, clip=True)(seen)[0, 0], expected, rtol=1e-14)


def test_without_clipping_short_contexts_are_softer_and_one_key_gives_zero():
    seen = torch.tensor([[1, 2, 64, 4096, 10**6]], dtype=torch.float64)
    expected = [0, 1 / 12, 0.5, 1, math.log(10**6) / math.log(4096)]
    np.testing.assert_allclose(LogN(4096)(seen)[0, 0], expected, rtol=1e-14)


def reference(q, k, v, slope: float, window: int, length: int) -> np.ndarray:
    """Query i scores ln(n_i)/ln(L) q . k / sqrt(D) - slope * distance over its own n_i visible keys."""
    rows = []
    for i in range(len(q)):
        j = np.arange(max(0, i - window + 1), i + 1)
        scores = math.log(len(j)) / math.log(length) * (k[j] @ q[i]) / q.shape[1] ** 0.5 - slope * (i - j)
        weights = np.exp(scores)
        rows.append(weights / weights.sum() @ v[j])
    return np.array(rows)


@pytest.mark.parametrize("window", [5, 99])
def test_each_query_counts_its_own_keys_and_biases_are_not_multiplied(window):
    q, k, v = torch.randn(3, 1, 1, 12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scheme = build(f"alibi+log_n+window:tokens={window}", Shape(1, 1, 4, 4, train_length=8))
    expected = reference(*(t[0, 0].numpy() for t in (q, k, v)), 2**-8, window, 8)
    np.testing.assert_allclose(attend(scheme, q, k, v)[0, 0].numpy(), expected, atol=1e-13)
    last = attend(scheme, q[:, :, 9:], k, v, Layout.plain(3, 12))
    np.testing.assert_allclose(last[0, 0].numpy(), expected[9:], atol=1e-13)


@pytest.mark.parametrize("window", [5, 99])
def test_padding_and_other_documents_are_not_counted(window):
    q, k, v = torch.randn(3, 1, 1, 12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scheme = build(f"nope+log_n+window:tokens={window}", Shape(1, 1, 4, 4, train_length=8))
    first, second = ([t[0, 0, s].numpy() for t in (q, k, v)] for s in (slice(0, 5), slice(5, 12)))
    packed = order(None, torch.tensor([[0] * 5 + [1] * 7]))
    y = attend(scheme, q, k, v, Layout(packed, packed))[0, 0].numpy()
    np.testing.assert_allclose(y[:5], reference(*first, 0, window, 8), atol=1e-13)
    np.testing.assert_allclose(y[5:], reference(*second, 0, window, 8), atol=1e-13)
    padded = order(torch.arange(12)[None] >= 5, None)
    y = attend(scheme, q, k, v, Layout(padded, padded))[0, 0].numpy()
    np.testing.assert_allclose(y[5:], reference(*second, 0, window, 8), atol=1e-13)
    assert np.isfinite(y).all()


def test_skipped_positions_are_not_counted():
    q = torch.randn(1, 1, 3, 4, dtype=torch.float64)
    line = Coordinates.plain(3).at(torch.tensor([[0, 500, 900]]))
    scheme = build("nope+log_n", Shape(1, 1, 4, 4, train_length=8))
    torch.testing.assert_close(attend(scheme, q, q, q, Layout(line, line)), attend(scheme, q, q, q))


@pytest.mark.parametrize("length", [1, 0])
def test_a_training_length_without_a_logarithm_is_refused(length):
    with pytest.raises(UsageError, match=f"'train_length' of LogN must be .*at least 2, got {length}"):
        LogN(length)
