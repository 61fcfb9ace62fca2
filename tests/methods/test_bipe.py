"""BiPE: segments against a loop that reads one token at a time."""

import numpy as np
import pytest
import torch

from lengthen.core import Layout, Shape, UsageError, build, get, order
from lengthen.methods.bipe import SegmentALiBi, segments
from lengthen.models import make_decoder, preset

SEPARATORS = (10, 46)


def read(idx, tokens):
    """(index inside the segment, number of the segment) of one row, as a reader would count them."""
    inside, number, i, n = [], [], 0, 0
    for at, token in zip(idx, tokens, strict=True):
        if at < 0:
            inside.append(-1)
            number.append(-1)
            continue
        if at == 0:
            i = n = 0
        inside.append(i)
        number.append(n)
        i, n = (0, n + 1) if token in SEPARATORS else (i + 1, n)
    return inside, number


def test_a_sentence():
    text = np.frombuffer(b"Ab. cd\n\ne.", dtype=np.uint8).astype(np.int64)
    inside, number = segments(torch.arange(10)[None], torch.from_numpy(text)[None], SEPARATORS)
    assert inside[0].tolist() == [0, 1, 2, 0, 1, 2, 3, 0, 0, 1]
    assert number[0].tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 3, 3]


@pytest.mark.parametrize("case", ["plain", "left padded", "right padded", "packed", "packed and padded"])
def test_segments_are_those_of_a_reader(case):
    generator = torch.Generator().manual_seed(0)
    choices = torch.tensor([1, 2, 3, 10, 46])
    tokens = choices[torch.randint(0, 5, (40, 37), generator=generator)]
    pad = torch.randint(0, 20, (40, 1), generator=generator)
    column = torch.arange(37)[None]
    valid = {"left padded": column >= pad, "right padded": column < 37 - pad, "packed and padded": column >= pad}.get(case)
    doc = (torch.rand(40, 37, generator=generator) < 0.15).long().cumsum(1) if "packed" in case else None
    idx = torch.arange(37)[None] if valid is None and doc is None else order(valid, doc).idx
    inside, number = segments(idx, tokens, SEPARATORS)
    for row, line in enumerate(idx.expand(40, -1).tolist()):
        assert (inside[row].tolist(), number[row].tolist()) == read(line, tokens[row].tolist())


def test_embedding_clamps_the_index_to_the_training_length():
    """A segment longer than any seen in training: sinusoids of min(index, L - 1), in numpy."""
    scheme = build("bipe", Shape(width=8, train_length=16))
    attention, inside = scheme.position(torch.arange(40)[None], torch.ones(2, 40, dtype=torch.long))
    assert (attention == 0).all()
    got = scheme.embedding(torch.zeros(2, 40, 8, dtype=torch.float64), inside)[1].numpy()
    angle = np.minimum(np.arange(40), 15)[:, None] / 10_000 ** (np.arange(0, 8, 2) / 8)
    np.testing.assert_allclose(got[:, 0::2], np.sin(angle), atol=1e-14)
    np.testing.assert_allclose(got[:, 1::2], np.cos(angle), atol=1e-14)


def test_rope_turns_by_the_number_of_the_segment():
    scheme = build("bipe", Shape(head_size=8))
    tokens = torch.tensor([[1, 10, 2, 46, 46, 3, 4]])
    pos = scheme.position(torch.arange(7)[None], tokens)[0]
    got = scheme.rotation.factors(pos.double(), pos.double()[:, -1:], keys=True)[0].numpy()
    angle = np.array([0, 0, 1, 1, 2, 3, 3])[:, None] * 10_000.0 ** (-np.arange(4) / 4)
    np.testing.assert_allclose(got, np.exp(1j * angle), atol=1e-14)


def test_alibi_penalises_segments():
    """96 m_h per segment, for 8 heads m_h = 2^-h; tokens of one segment are not told apart."""
    scheme = build("bipe:attention=alibi", Shape(heads=8, groups=8))
    tokens = torch.tensor([[1, 10, 2, 46, 46, 3, 4]])
    line = Layout.plain(7).k.at(scheme.position(torch.arange(7)[None], tokens)[0])
    q = torch.zeros(1, 8, 7, 16, dtype=torch.float64)
    got = scheme.plan(q, q, q, Layout(line, line)).logits()[0].numpy()
    number = np.array([0, 0, 1, 1, 2, 3, 3])
    for h in range(8):
        np.testing.assert_allclose(got[h], -96 * 2.0 ** -(h + 1) * abs(number[:, None] - number[None]), rtol=1e-14)


def test_slopes_for_any_number_of_heads():
    """6 heads: 96 times 1/4, 1/16, 1/64, 1/256, then 1/2, 1/8."""
    assert SegmentALiBi(6).slopes == pytest.approx([24.0, 6.0, 1.5, 0.375, 48.0, 12.0], rel=1e-14)


@pytest.mark.parametrize("attention", ["rope", "alibi"])
@pytest.mark.parametrize("sizes", [[1], [5], [3, 1, 11]])
def test_cached_decoding_is_the_full_forward(attention, sizes):
    """Segments that run across chunks, rows with different segments, and left padding."""
    model = make_decoder(preset("tiny", vocab=50), f"bipe:attention={attention}", train_length=16).double().eval()
    ids = torch.randint(0, 50, (3, 45), generator=torch.Generator().manual_seed(1))
    ids[:, 3], ids[0, 7::4], ids[1, 20] = 10, 46, 10
    valid = torch.arange(45)[None] >= torch.tensor([[0], [6], [13]])
    for mask in (None, valid):
        cache, out, start = model.new_cache(), [], 0
        while start < 45:
            part = slice(start, start + sizes[len(out) % len(sizes)])
            out.append(model(ids[:, part], valid=None if mask is None else mask[:, part], cache=cache))
            start = part.stop
        real = slice(None) if mask is None else valid
        torch.testing.assert_close(torch.cat(out, 1)[real], model(ids, valid=mask)[real], rtol=0, atol=1e-12)


def test_separators_of_another_vocabulary():
    scheme = build("bipe:separators=(13,869)", Shape())
    tokens = torch.tensor([[869, 5, 13, 10, 46]])
    assert scheme.position(torch.arange(5)[None], tokens)[0].tolist() == [[0, 1, 1, 2, 2]]
    assert build("bipe:separators=5", Shape()).position(torch.arange(5)[None], tokens)[0].tolist() == [[0, 0, 1, 1, 1]]


def test_without_tokens_it_says_what_is_missing():
    with pytest.raises(UsageError, match="no tokens"):
        build("bipe", Shape()).position(torch.arange(5)[None])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"separators": ()}, r"got \(\)"),
        ({"separators": "."}, "got '.'"),
        ({"separators": (10, -1)}, "got -1"),
        ({"separators": (1.5,)}, "got 1.5"),
        ({"attention": "t5"}, "'rope' or 'alibi', got 't5'"),
        ({"base": 0}, "got 0"),
    ],
)
def test_bad_options_are_refused(options, said):
    with pytest.raises(UsageError, match=said):
        get("bipe").build(Shape(), **options)


def test_odd_heads_are_refused_by_rope_only():
    with pytest.raises(UsageError, match="got 15"):
        build("bipe", Shape(head_size=15))
    build("bipe:attention=alibi", Shape(head_size=15))
