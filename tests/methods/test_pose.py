"""PoSE: chunks that skip positions, against the definition of the paper and the law of its draws."""

import numpy as np
import pytest
import torch

from lengthen.core import LengthError, Shape, UsageError, build
from lengthen.methods.pose import PositionalSkips


def drawn(limit, chunks, window, rows, seed=0):
    torch.manual_seed(seed)
    return PositionalSkips(limit, chunks).train()(torch.arange(window)[None], torch.zeros(rows, window, dtype=torch.long))


@pytest.mark.parametrize("chunks", [1, 2, 3, 7])
def test_chunks_are_consecutive_start_at_zero_and_stay_below_the_limit(chunks):
    pos = drawn(100, chunks, 20, 500)
    steps = pos.diff(dim=1)
    assert (pos[:, 0] == 0).all() and (steps >= 1).all() and pos.max() < 100
    assert ((steps > 1).sum(1) <= chunks - 1).all()
    if chunks > 1:
        assert pos.max() == 99 and ((steps > 1).sum(1) == chunks - 1).any()


def test_every_distance_occurs():
    pos = drawn(64, 2, 16, 3000)
    seen = np.unique((pos[:, :, None] - pos[:, None, :]).abs().numpy())
    assert seen.tolist() == list(range(64))


def test_borders_and_skips_are_uniform():
    """Two chunks in a window of 6, limit 10: 5 borders x 5 skips, 25 equally likely; chi-square of 24 degrees at 1e-4: 59."""
    pos = drawn(10, 2, 6, 10_000)
    skip = pos[:, -1] - 5
    # With no skip the border cannot be seen, so the borders are counted where there is one.
    border = (pos.diff(dim=1) > 1).int().argmax(1)
    counts = np.array(
        [int(((skip == u) & (border == b)).sum()) for u in range(1, 5) for b in range(5)] + [int((skip == 0).sum())]
    )
    expected = np.array([400.0] * 20 + [2000.0])
    assert ((counts - expected) ** 2 / expected).sum() < 59


def test_one_chunk_and_evaluation_are_plain_order():
    idx = torch.arange(9)[None]
    assert drawn(50, 1, 9, 2).tolist() == [list(range(9))] * 2
    assert PositionalSkips(50).eval()(idx).tolist() == idx.tolist()


def test_padding_stays_and_short_windows_have_a_chunk_per_token():
    torch.manual_seed(0)
    idx = torch.tensor([[-1, -1, 0, 1]])
    pos = PositionalSkips(40, 5).train()(idx, torch.zeros(300, 4, dtype=torch.long))
    assert (pos[:, :2] == -1).all() and (pos[:, 2] == 0).all() and pos[:, 3].max() == 39 and pos[:, 3].min() == 1


def test_refusals_name_both_numbers():
    with pytest.raises(LengthError, match="8 positions, got 9 tokens"):
        drawn(8, 2, 9, 1)
    with pytest.raises(UsageError, match="64 positions, less than the 128"):
        build("rope+pose:limit=64", Shape(train_length=128))
