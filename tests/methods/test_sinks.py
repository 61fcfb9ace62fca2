"""Sinks beside a window, against the union written out."""

import numpy as np
import pytest
import torch

from lengthen.backends import attend
from lengthen.core import Layout, Shape, UsageError, build, order, visible
from lengthen.methods.sinks import Sinks


def test_the_first_tokens_and_the_window():
    pattern = build("sinks:tokens=2,window=3").pattern
    i = torch.arange(8)
    expected = [[k <= q and (k < 2 or q - k < 3) for k in range(8)] for q in range(8)]
    np.testing.assert_array_equal(pattern(i[:, None], i[None, :]).numpy(), expected)
    assert pattern.causal and not pattern.relative
    assert pattern.spans(7, 7, 8) == ((0, 2), (5, 8))


def test_each_packed_document_and_padded_row_has_its_own_sinks():
    pattern = build("sinks:tokens=1,window=2").pattern
    packed = order(None, torch.tensor([[0] * 4 + [1] * 4]))
    shown = visible(Layout(packed, packed), pattern)[0, 0]
    assert shown[7].tolist() == [False] * 4 + [True, False, True, True]
    padded = order(torch.tensor([[False, False, True, True, True, True]]), None)
    assert visible(Layout(padded, padded), pattern)[0, 0, 5].tolist() == [False, False, True, False, True, True]


def test_attention_over_what_is_left():
    q, k, v = torch.randn(3, 1, 1, 9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kept = [0, 1, 6, 7, 8]
    weights = np.exp(q[0, 0, 8].numpy() @ k[0, 0, kept].numpy().T / 2)
    y = attend(build("nope+sinks:tokens=2,window=3"), q, k, v)[0, 0, 8]
    np.testing.assert_allclose(y.numpy(), weights / weights.sum() @ v[0, 0, kept].numpy(), atol=1e-13)


def test_by_default_sinks_and_window_make_up_the_training_length():
    pattern = build("sinks", Shape(train_length=16)).pattern
    i = torch.arange(100)
    assert pattern(i[:, None], i[None, :]).sum(1).max() == 16
    assert Sinks() == Sinks(4)


def test_sizes_below_one_are_refused():
    with pytest.raises(UsageError, match=r"'tokens' of Sinks must be .*got 0"):
        build("sinks:tokens=0")
    with pytest.raises(UsageError, match=r"'tokens' of Window must be .*got 0"):
        build("sinks:window=0")
