"""Sliding window against its sentence."""

import numpy as np
import pytest
import torch

from lengthen.backends import attend
from lengthen.core import Shape, UsageError, build
from lengthen.methods.window import Window


@pytest.mark.parametrize("tokens", [1, 3, 6, 50])
def test_a_query_sees_itself_and_the_tokens_before_it(tokens):
    i = torch.arange(8)
    shown = Window(tokens)(i[:, None], i[None, :]).numpy()
    expected = [[max(0, q - tokens + 1) <= k <= q for k in range(8)] for q in range(8)]
    np.testing.assert_array_equal(shown, expected)
    assert shown.sum(1).tolist() == [min(q + 1, tokens) for q in range(8)]


def test_a_window_of_one_returns_the_values():
    q, k, v = torch.randn(3, 1, 2, 5, 4, dtype=torch.float64)
    torch.testing.assert_close(attend(build("rope+window:tokens=1", Shape(2, 2, 4, 8)), q, k, v), v)


def test_spans_start_where_the_first_query_does():
    assert Window(4).spans(10, 12, 100) == ((7, 13),)
    assert Window(4).spans(0, 2, 100) == ((0, 3),)
    assert Window(4).spans(10, 12, 9) == ((7, 9),)
    assert Window(4).spans(50, 60, 9) == ()


def test_the_default_is_the_training_length():
    assert build("window", Shape(train_length=37)).pattern == Window(37)
    assert build("alibi+window:tokens=5").pattern == Window(5)


def test_sizes_below_one_are_refused():
    for tokens in (0, -4):
        with pytest.raises(UsageError, match=f"'tokens' of Window must be .*at least 1, got {tokens}"):
            build(f"window:tokens={tokens}")
