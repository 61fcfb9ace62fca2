"""Randomised positions: sorted samples without replacement in training, one fixed set in evaluation."""

from itertools import combinations

import numpy as np
import pytest
import torch

from lengthen.core import LengthError, Shape, UsageError, build, order
from lengthen.methods.randomised import Randomised
from lengthen.models import make_decoder, preset


def idx(tokens):
    return torch.arange(tokens)[None]


def test_training_draws_sorted_distinct_positions_for_each_row():
    torch.manual_seed(0)
    pos = Randomised(2048).train()(idx(128), torch.zeros(32, 128, dtype=torch.long))
    assert pos.shape == (32, 128) and pos.dtype == torch.int64
    assert (pos.diff(dim=1) > 0).all() and pos.min() >= 0 and pos.max() < 2048
    assert len({tuple(row) for row in pos.tolist()}) == 32


def test_every_subset_is_equally_likely():
    """The 15 pairs out of 6 in 9000 draws: chi-square of 14 degrees, critical value at 1e-4: 43.1."""
    torch.manual_seed(0)
    pos = Randomised(6).train()(idx(2), torch.zeros(9000, 2, dtype=torch.long))
    pairs = [tuple(p) for p in pos.tolist()]
    counts = np.array([pairs.count(c) for c in combinations(range(6), 2)])
    assert counts.sum() == 9000
    assert ((counts - 600) ** 2 / 600).sum() < 43.1


def test_documents_of_a_row_draw_apart_and_padding_stays():
    """A document of n tokens spreads over the whole range, however short; the largest of n has mean n (M+1) / (n+1) - 1."""
    torch.manual_seed(0)
    doc = torch.tensor([0] * 3 + [1] * 7 + [2] * 6).repeat(2000, 1)
    valid = (torch.arange(16) >= 1).repeat(2000, 1)
    line = order(valid, doc)
    pos = Randomised(100).train()(line.idx, doc)
    assert (pos[:, 0] == -1).all()
    for first, last, n in ((1, 2, 2), (3, 9, 7), (10, 15, 6)):
        part = pos[:, first : last + 1].double()
        assert (part.diff(dim=1) > 0).all() and part.min() >= 0 and part.max() < 100
        expected = n * 101 / (n + 1) - 1
        assert part[:, -1].mean().item() == pytest.approx(expected, abs=5 * 100 / 2000**0.5 / 3)


def test_whole_range_is_the_identity():
    assert Randomised(9).train()(idx(9)).tolist() == [list(range(9))]


def test_a_seed_fixes_the_draw_of_training():
    draws = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        draws.append(Randomised(2048).train()(idx(50), torch.zeros(4, 50, dtype=torch.long)))
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


def test_drawn_evaluation_is_one_sorted_set_indexed_by_order():
    """Whatever is asked for, in one piece or several, and wherever the global generator stands."""
    scheme = build("randomised", Shape(train_length=32)).eval()
    state = torch.get_rng_state()
    whole = scheme.position(idx(256))[0][0]
    assert torch.equal(torch.get_rng_state(), state)
    assert (whole.diff() > 0).all() and whole.min() >= 0 and whole.max() < 2048
    assert scheme.position(torch.tensor([[-1, 0, 1, 255]]))[0].tolist() == [[-1, *whole[[0, 1, 255]].tolist()]]
    assert torch.equal(build("randomised", Shape(train_length=32)).eval().position(idx(256))[0][0], whole)
    assert not torch.equal(build("randomised:seed=1", Shape(train_length=32)).eval().position(idx(256))[0][0], whole)


def test_plain_evaluation():
    scheme = build("randomised:evaluate=plain", Shape(train_length=32)).eval()
    assert scheme.position(idx(5000))[0][0].tolist() == list(range(5000))


@pytest.mark.parametrize(("options", "most"), [("", 256), ("limit=100", 100), ("length=40", 40)])
def test_drawn_evaluation_ends_with_a_sentence(options, most):
    scheme = build(f"randomised:{options}", Shape(train_length=32)).eval()
    scheme.position(idx(most))
    with pytest.raises(LengthError, match=rf"drew {most} of .* got {most + 1} tokens.*evaluate=plain"):
        scheme.position(idx(most + 1))


def test_the_way_out_of_the_sentence_works():
    with pytest.raises(LengthError) as said:
        build("randomised", Shape(train_length=512)).eval().position(idx(3000))
    spec = str(said.value).split("as in '")[1].split("'")[0]
    assert build(spec, Shape(train_length=512)).eval().position(idx(3000))[0].shape == (1, 3000)


def test_training_texts_longer_than_the_range_are_refused():
    with pytest.raises(LengthError, match=r"101 tokens.*out of 100"):
        Randomised(100).train()(idx(101))


def test_rope_sees_the_drawn_positions():
    """In a model, `rope+randomised` scores by the distances of the drawn set: checked on q . k in complex float64."""
    scheme = build("rope+randomised", Shape(head_size=8, train_length=16)).eval()
    drawn = scheme.position(idx(20))[0]
    got = scheme.rotation.factors(drawn.double(), drawn.double()[:, -1:], keys=False)[0].numpy()
    np.testing.assert_allclose(got, np.exp(1j * drawn[0].numpy()[:, None] * 10_000.0 ** (-np.arange(4) / 4)), atol=1e-12)


def test_training_rows_differ_inside_the_model():
    """The same text in four rows: one draw for the whole batch would give four equal rows."""
    torch.manual_seed(0)
    model = make_decoder(preset("tiny", vocab=50), "rope+randomised", train_length=16).train()
    hidden = model.hidden(torch.arange(16)[None].repeat(4, 1))
    assert len({tuple(row.flatten().tolist()) for row in hidden.detach()}) == 4


def test_gaps_in_the_positions_hide_nothing():
    """Trained rows stand far apart; changing the first token must still reach every later one."""
    model = make_decoder(preset("tiny", vocab=50), "rope+randomised", train_length=16).double().eval()
    ids = torch.arange(16)[None]
    other = ids.clone()
    other[0, 0] = 40
    assert ((model(ids) - model(other)).abs().amax(-1) > 1e-9).all()


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("limit=16", "32 training tokens.*16"),
        ("limit=0", "got 0"),
        ("length=3000", "3000 distinct positions out of 2048"),
        ("length=0", "got 0"),
        ("seed=-1", "got -1"),
        ("evaluate=fresh", "'drawn' or 'plain', got 'fresh'"),
    ],
)
def test_bad_options_are_refused(option, said):
    with pytest.raises(UsageError, match=said):
        build(f"randomised:{option}", Shape(train_length=32))
