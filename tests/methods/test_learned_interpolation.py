"""Learned tables read between their rows: numpy's interpolation, channel by channel."""

import numpy as np
import pytest
import torch

from lengthen.core import LengthError, Shape, UsageError, build
from lengthen.methods.learned_interpolation import stretched


@pytest.mark.parametrize("factor", [1.0, 1.5, 2.0, 3.7, 8.0])
@pytest.mark.parametrize("rows", [1, 2, 31])
def test_rows_are_numpys_interpolation_and_the_last_row_beyond(factor, rows):
    table = torch.randn(rows, 5, dtype=torch.float64)
    found = stretched(table, factor).numpy()
    at = np.arange(round(factor * rows)) / factor
    expected = np.stack([np.interp(at, np.arange(rows), column) for column in table.numpy().T], axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


def test_whole_factors_keep_the_rows_to_the_bit():
    for kind in (torch.float32, torch.bfloat16):
        table = torch.randn(16, 8).to(kind)
        assert stretched(table, 3.0).dtype == kind
        assert torch.equal(stretched(table, 3.0)[::3], table)
        assert torch.equal(stretched(table, 1.0), table)


def test_a_scheme_has_answers_up_to_the_factor_and_gradients_reach_every_row():
    scheme = build("learned_interpolation:factor=2", Shape(width=8, train_length=6))
    x, pos = torch.zeros(1, 12, 8), torch.arange(12)[None]
    out = scheme.embedding(x, pos)
    torch.testing.assert_close(out[0], stretched(scheme.embedding.table, 2.0))
    out.sum().backward()
    assert bool((scheme.embedding.table.grad.abs().sum(1) > 0).all())
    assert torch.equal(scheme.embedding(x[:, :1], torch.tensor([[-1]])), x[:, :1])
    with pytest.raises(LengthError, match="has 12 positions, from 0 to 11, and was asked for position 12"):
        scheme.embedding(x, pos + 1)


def test_what_cannot_be_is_refused():
    with pytest.raises(UsageError, match=r"at least 1, got 0\.5"):
        build("learned_interpolation:factor=0.5")
    with pytest.raises(UsageError, match="'length'"):
        build("learned_interpolation:length=0")
