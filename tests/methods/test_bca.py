"""Blockwise causal attention against the published matrix and its definition."""

import numpy as np
import pytest
import torch

from lengthen.core import Shape, UsageError, build
from lengthen.methods.bca import BlockwiseCausal

PUBLISHED = """
100000000000
110000000000
111000000000
111100000000
111110000000
111111000000
111111100000
111111110000
000011111000
000011111100
000011111110
000011111111
"""
"""Training length 8, so blocks of 4; 12 tokens."""


def test_the_published_matrix():
    pattern = build("bca", Shape(train_length=8)).pattern
    i = torch.arange(12)
    shown = pattern(i[:, None], i[None, :]).int().tolist()
    assert ["".join(map(str, row)) for row in shown] == PUBLISHED.split()


@pytest.mark.parametrize("block", [1, 3, 8])
def test_its_own_block_causally_and_the_block_before_whole(block):
    i = torch.arange(40)
    shown = BlockwiseCausal(block)(i[:, None], i[None, :]).numpy()
    for q in range(40):
        own = q // block * block
        np.testing.assert_array_equal(np.flatnonzero(shown[q]), np.arange(max(0, own - block), q + 1))


@pytest.mark.parametrize("length", [2, 7, 8, 128])
def test_no_distance_reaches_the_training_length(length):
    pattern = build("bca", Shape(train_length=length)).pattern
    i = torch.arange(4 * length)
    distance = (i[:, None] - i[None, :])[pattern(i[:, None], i[None, :])]
    assert int(distance.max()) == 2 * (length // 2) - 1 < length


def test_spans_begin_with_the_block_before_the_first_query():
    pattern = BlockwiseCausal(4)
    assert pattern.spans(8, 9, 100) == ((4, 10),)
    assert pattern.spans(7, 9, 100) == ((0, 10),)
    assert pattern.spans(40, 41, 30) == ()
    assert pattern.causal and not pattern.relative


def test_sizes_below_one_are_refused():
    with pytest.raises(UsageError, match=r"'block' of BlockwiseCausal must be .*got 0"):
        build("bca:block=0")
    with pytest.raises(UsageError, match=r"'block' of BlockwiseCausal must be .*got 0"):
        build("bca", Shape(train_length=1))
