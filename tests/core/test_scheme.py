"""Schemes: composition, and attention under a composed scheme against numpy in float64."""

import math

import numpy as np
import pytest
import torch

from lengthen.backends import attend
from lengthen.core import Causal, Coordinates, Everywhere, Layout, Scheme, Shape, UsageError, build, compose, keys_seen, order
from lengthen.core.patterns import Both
from lengthen.methods.window import Window
from lengthen.methods.xpos import XPos

SHAPE = Shape(heads=4, groups=2, head_size=8, width=32, train_length=6)


def draw(queries, keys, seed=0):
    g = torch.Generator().manual_seed(seed)
    make = lambda heads, tokens: torch.randn(2, heads, tokens, 8, generator=g, dtype=torch.float64)
    return make(4, queries), make(2, keys), make(2, keys)


def by_hand(q, k, v, window):
    """RoPE + ALiBi + window + log-n, one query and key at a time: the four papers' formulas, keys shared by two heads each."""
    q, k, v = (t.numpy() for t in (q, k, v))
    out, shift = np.zeros_like(q), k.shape[2] - q.shape[2]
    turn = lambda x, p: (x[0::2] + 1j * x[1::2]) * np.exp(1j * p * 10_000.0 ** (-np.arange(4) / 4))
    for b, h, i in np.ndindex(q.shape[:3]):
        at = i + shift
        seen = range(max(0, at - window + 1), at + 1)
        temperature = math.log(len(seen)) / math.log(6)
        dot = lambda j: (turn(q[b, h, i], at) * turn(k[b, h // 2, j], j).conj()).sum().real  # noqa: B023
        scores = np.array([temperature * dot(j) / math.sqrt(8) - 2.0 ** (-2 * (h + 1)) * (at - j) for j in seen])
        weights = np.exp(scores - scores.max())
        out[b, h, i] = (weights / weights.sum()) @ v[b, h // 2, list(seen)]
    return out


@pytest.mark.parametrize(("queries", "keys", "window"), [(9, 9, 4), (3, 9, 4), (9, 9, 1), (1, 1, 4), (1, 9, 100)])
def test_rope_alibi_window_and_log_n_together(queries, keys, window):
    q, k, v = draw(queries, keys)
    scheme = build(f"rope+alibi+window:tokens={window}+log_n", SHAPE)
    got = attend(scheme, q, k, v, Layout.plain(queries, keys), backend="dense")
    np.testing.assert_allclose(got.numpy(), by_hand(q, k, v, window), atol=1e-12)


def test_the_order_of_composition_does_not_matter():
    q, k, v = draw(9, 9)
    got = attend(build("log_n+window:tokens=4+alibi+rope", SHAPE), q, k, v, backend="dense")
    np.testing.assert_allclose(got.numpy(), by_hand(q, k, v, 4), atol=1e-12)


def test_terms_add_up_and_single_stages_are_kept():
    a, b, c = build("alibi"), build("rope+alibi:slopes=geometric"), build("sinusoidal+log_n")
    made = compose(a, b, c)
    assert list(made.terms) == [a.terms[0], b.terms[0]]
    assert (made.rotation, made.embedding, made.temperature) == (b.rotation, c.embedding, c.temperature)


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("rope", "xpos", "one rotation stage, got 2: Rotary and XPos"),
        ("log_n", "ssmax", "one temperature stage, got 2: LogN and SSMax"),
        ("shape", "cape", "one embedding stage, got 2"),
        ("randomised", "bipe", "one positions stage, got 2: Randomised and Segments"),
    ],
)
def test_two_of_a_kind_are_refused_by_name(a, b, said):
    with pytest.raises(UsageError, match=said):
        compose(build(a), build(b))


def test_patterns_intersect_without_repeating_what_is_implied():
    assert compose(Scheme(), Scheme()).pattern == Causal()
    assert compose(Scheme(), Scheme(pattern=Window(3))).pattern == Window(3)
    assert compose(Scheme(pattern=Everywhere()), Scheme(pattern=Everywhere())).pattern == Everywhere()
    both = compose(Scheme(pattern=Window(3)), Scheme(pattern=Window(5)), Scheme(pattern=Window(3)))
    assert both.pattern == Both(Window(3), Window(5))


def test_positions_serve_the_embedding_unless_it_has_its_own():
    idx = torch.arange(4)[None]
    shared = build("sinusoidal+randomised:limit=50,length=4", Shape(train_length=4)).eval().position(idx)
    assert torch.equal(shared[0], shared[1]) and not torch.equal(shared[0], idx)
    apart = build("bipe").position(idx, torch.tensor([[10, 10, 1, 1]]))
    assert (apart[0].tolist(), apart[1].tolist()) == ([[0, 1, 2, 2]], [[0, 0, 0, 1]])
    plain = build("rope").position(idx)
    assert plain[0] is idx and plain[1] is idx


def test_relative_is_declared_by_the_stages():
    relative = {spec: build(spec).relative for spec in ("rope", "alibi", "rope+alibi", "nope", "sinusoidal", "learned", "bipe")}
    assert relative == {
        "rope": True,
        "alibi": True,
        "rope+alibi": True,
        "nope": True,
        "sinusoidal": False,
        "learned": False,
        "bipe": False,
    }


def test_another_pattern_shares_the_weights_and_the_mode():
    scheme = build("learned+alibi").eval()
    other = scheme.with_pattern(Window(3))
    assert other.pattern == Window(3) and scheme.pattern == Causal() and not other.training
    assert other.embedding is scheme.embedding and other.terms[0] is scheme.terms[0]


def test_a_causal_rotation_refuses_keys_behind_the_query():
    rotation = build("xpos").rotation
    with pytest.raises(UsageError, match=r"XPos.*must be causal.*Everywhere"):
        Scheme(rotation=rotation, pattern=Everywhere())
    Scheme(rotation=rotation, pattern=Everywhere() & Window(4))


def test_heads_that_do_not_divide_are_refused():
    q, k, v = draw(5, 5)
    with pytest.raises(UsageError, match="4 query heads cannot share 3"):
        attend(Scheme(), q, torch.cat((k, k[:, :1]), 1), torch.cat((v, v[:, :1]), 1))


def test_a_layout_of_other_sizes_is_refused():
    q, k, v = draw(5, 5)
    with pytest.raises(UsageError, match="4 queries and 4 keys, got 5 and 5"):
        attend(Scheme(), q, k, v, Layout.plain(4))


@pytest.mark.parametrize("pattern", [Causal(), Window(3), Everywhere()])
def test_keys_seen_counts_what_a_query_sees(pattern):
    """Padding and other documents do not count; queries that see nothing report 1, so that logarithms stay finite."""
    g = torch.Generator().manual_seed(0)
    valid = torch.arange(12) >= torch.tensor([[0], [5]])
    doc = (torch.rand(2, 12, generator=g) < 0.25).long().cumsum(1)
    line = order(valid, doc)
    got = keys_seen(Layout(line, line), pattern)
    for row in range(2):
        for i in range(12):
            same = [j for j in range(12) if valid[row, i] and valid[row, j] and doc[row, i] == doc[row, j]]
            shown = {
                Causal(): [j for j in same if j <= i],
                Window(3): [j for j in same if i - 3 < j <= i],
                Everywhere(): same,
            }[pattern]
            assert got[row, i].item() == max(1, len(shown)), (row, i)


def xpos(reach):
    scheme = build("xpos")
    scheme.rotation.reach = reach
    assert isinstance(scheme.rotation, XPos)
    return scheme


def test_a_run_is_cut_by_reach():
    assert xpos(4).blocks(Layout.plain(10)) == [slice(0, 4), slice(4, 8), slice(8, 10)]
    assert build("rope").blocks(Layout.plain(10)) == [slice(None)]


@pytest.mark.parametrize("seed", range(4))
def test_cuts_cover_every_query_once_and_span_no_more_than_reach(seed):
    """Rows at their own, jumping positions; padding stands nowhere."""
    g = torch.Generator().manual_seed(seed)
    pos = torch.randint(1, 9, (3, 40), generator=g).cumsum(1)
    valid = torch.arange(40) >= torch.tensor([[0], [11], [29]])
    line = Coordinates(torch.arange(40)[None].expand(3, -1), pos, None, valid)
    cuts = xpos(16).blocks(Layout(line, line))
    assert [t for c in cuts for t in range(40)[c]] == list(range(40))
    for c in cuts:
        for row in range(3):
            held = pos[row, c][valid[row, c]]
            assert held.numel() == 0 or (held.max() - held.min()).item() <= 16


def test_a_part_that_attends_in_both_directions_is_not_silently_made_causal():
    shape = Shape()
    assert build("rope+alibi:bidirectional=symmetric", shape).pattern == Everywhere()
    assert build("alibi:bidirectional=symmetric+window:tokens=4", shape).pattern.causal
    with pytest.raises(UsageError, match="causal"):
        build("xpos+alibi:bidirectional=symmetric", shape)
