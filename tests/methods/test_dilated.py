"""Dilated windows: which keys a query sees (Longformer, arXiv:2004.05150, section 3.1)."""

import pytest
import torch

from lengthen.core import Shape, UsageError, build
from lengthen.methods.dilated import Dilated
from lengthen.methods.window import Window


@pytest.mark.parametrize(("tokens", "step"), [(1, 1), (3, 2), (4, 5), (30, 3)])
def test_each_query_sees_so_many_keys_so_far_apart(tokens, step):
    for i in range(40):
        seen = Dilated(tokens, step)(torch.tensor(i), torch.arange(40)).nonzero().flatten().tolist()
        assert seen == sorted(i - n * step for n in range(tokens) if i - n * step >= 0)


def test_spans_leave_nothing_visible_out():
    pattern, at = Dilated(4, 3), torch.arange(50)
    for first, last in ((0, 0), (5, 20), (44, 49)):
        rows = pattern(at[first : last + 1, None], at[None]).any(0)
        (span,) = pattern.spans(first, last, 50)
        assert rows.nonzero().amin() >= span[0] and rows.nonzero().amax() < span[1]


def test_a_step_of_one_is_a_window_and_thinned_it_always_is():
    i, j = torch.arange(30)[:, None], torch.arange(30)
    assert torch.equal(Dilated(7, 1)(i, j), Window(7)(i, j))
    assert Dilated(7, 4).thinned == Window(7)


def test_defaults_span_the_training_length():
    assert build("dilated:step=4", Shape(train_length=90)).pattern == Dilated(23, 4)
    with pytest.raises(UsageError, match="step"):
        Dilated(3, 0)
