"""Chunked attention: which keys a query sees, against the rule of its source and transformers' own mask (arXiv:1911.02972)."""

import pytest
import torch
from transformers.masking_utils import chunked_overlay

from lengthen.core import Shape, UsageError, build
from lengthen.methods.chunked import Chunked


def plane(pattern, tokens):
    at = torch.arange(tokens)
    return pattern(at[:, None], at[None])


@pytest.mark.parametrize(("tokens", "chunk"), [(1, 1), (10, 3), (12, 4), (9, 20)])
def test_sees_what_transformers_shows_in_chunked_layers(tokens, chunk):
    shown = chunked_overlay(chunk, torch.zeros(1, dtype=torch.long))
    for i in range(tokens):
        for j in range(tokens):
            theirs = bool(shown(0, 0, torch.tensor(i), torch.tensor(j))) and j <= i
            assert bool(plane(Chunked(chunk), tokens)[i, j]) == theirs


@pytest.mark.parametrize("chunk", [1, 4, 7])
def test_spans_and_intervals_agree_with_the_rule(chunk):
    pattern, seen = Chunked(chunk), plane(Chunked(chunk), 20)
    for i, (start, stop) in enumerate(pattern.intervals(torch.arange(20), 20)[:, 0].tolist()):
        assert seen[i].nonzero().flatten().tolist() == list(range(start, stop))
    for first, last in ((0, 0), (3, 9), (13, 19)):
        rows = seen[first : last + 1].any(0)
        (span,) = pattern.spans(first, last, 20)
        assert not rows[: span[0]].any() and not rows[span[1] :].any()


def test_the_training_length_is_the_default():
    assert build("chunked", Shape(train_length=96)).pattern == Chunked(96)
    with pytest.raises(UsageError, match="tokens"):
        Chunked(0)
