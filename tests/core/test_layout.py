"""Coordinates and layouts against counting by hand."""

import pytest
import torch

from lengthen.core import Coordinates, Layout, order


def counted(valid, doc):
    """The order of each token of one row: a count per document, -1 on padding."""
    seen, out = {}, []
    for real, d in zip(valid, doc, strict=True):
        out.append(seen.get(d, 0) if real else -1)
        seen[d] = seen.get(d, 0) + bool(real)
    return out


@pytest.mark.parametrize(("padding", "documents"), [(True, False), (False, True), (True, True)])
def test_order_counts_real_tokens_of_each_document(padding, documents):
    """200 random rows, padding anywhere, documents down to one token."""
    g = torch.Generator().manual_seed(0)
    valid = torch.rand(200, 19, generator=g) < 0.7
    doc = (torch.rand(200, 19, generator=g) < 0.3).long().cumsum(1)
    line = order(valid if padding else None, doc if documents else None)
    for row in range(200):
        real = valid[row].tolist() if padding else [True] * 19
        assert line.idx[row].tolist() == counted(real, doc[row].tolist() if documents else [0] * 19)
    assert line.pos is line.idx
    assert (line.valid is not None, line.doc is not None) == (padding, documents)


def test_plain():
    line = Coordinates.plain(3, start=5)
    assert line.idx.tolist() == [[5, 6, 7]] and line.pos is line.idx and line.is_run and line.tokens == 3


@pytest.mark.parametrize(
    ("pos", "run"),
    [
        ([[0, 1, 2, 3]], True),
        ([[9, 10, 11, 12]], True),
        ([[0, 1, 3, 4]], False),
        ([[0, 0, 0, 0]], False),
        ([[3, 2, 1, 0]], False),
        ([[0, 1, 2, 3], [1, 2, 3, 4]], False),
        ([[0.0, 1.0, 2.0, 3.0]], False),
    ],
)
def test_a_run_steps_by_one_in_all_rows(pos, run):
    line = Coordinates.plain(4).at(torch.tensor(pos))
    assert line.is_run is run


def test_padding_and_documents_are_never_runs():
    idx = torch.arange(3)[None]
    assert not Coordinates(idx, idx, doc=torch.zeros_like(idx)).is_run
    assert not Coordinates(idx, idx, valid=torch.ones_like(idx, dtype=torch.bool)).is_run


def test_moving_keeps_order_documents_and_padding():
    valid, doc = torch.tensor([[False, True, True]]), torch.tensor([[0, 0, 1]])
    line = order(valid, doc)
    other = line.at(line.pos * 10)
    assert other.pos.tolist() == [[-10, 0, 0]] and other.idx.tolist() == [[-1, 0, 0]]
    assert other.doc is doc and other.valid is valid


def test_taking_tokens_takes_all_coordinates():
    valid, doc = torch.tensor([[False, True, True, True]]), torch.tensor([[0, 0, 0, 1]])
    part = order(valid, doc).take(slice(1, 4))
    assert [t.tolist() for t in (part.idx, part.pos, part.doc, part.valid)] == [
        [[0, 1, 0]],
        [[0, 1, 0]],
        [[0, 0, 1]],
        [[True, True, True]],
    ]
    assert Coordinates.plain(9).take(slice(4, 6)).is_run


def test_fewer_queries_than_keys_are_the_last_ones():
    layout = Layout.plain(2, 5)
    assert layout.q.idx.tolist() == [[3, 4]] and layout.k.idx.tolist() == [[0, 1, 2, 3, 4]]
    assert layout.is_run and layout.shift == layout.order_shift == 3


def test_positions_shifted_apart_from_order_are_no_run():
    """Distance must be `row - column + shift` in order and in position alike."""
    keys = Coordinates.plain(4)
    assert not Layout(keys.at(keys.pos + 7), keys).is_run
    both = Layout(keys.at(keys.pos + 7), keys.at(keys.pos + 7))
    assert both.is_run and both.shift == 0


def test_memo_makes_once_and_parts_are_shared():
    layout, made = Layout.plain(6), []
    for _ in range(3):
        assert layout.remember("table", lambda: made.append(1) or "made") == "made"
    assert made == [1]
    part = layout.part(slice(2, 4), slice(0, 4))
    assert part is layout.part(slice(2, 4), slice(0, 4)) and part is not layout.part(slice(2, 4))
    assert (part.q.idx.tolist(), part.k.idx.tolist()) == ([[2, 3]], [[0, 1, 2, 3]])
    assert "table" not in part.memo
