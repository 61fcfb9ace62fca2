"""Branches: regions of the plane scored at positions of their own, against a two-loop float64 computation."""

import math

import numpy as np
import pytest
import torch

from lengthen.backends import attend
from lengthen.core import Beyond, Branch, Causal, Coordinates, Geometric, Layout, Needs, Scheme, ScoreTerm, UsageError, order
from lengthen.core.patterns import Both, Either, Everywhere
from lengthen.methods.bca import BlockwiseCausal
from lengthen.methods.rope import Rotary
from lengthen.methods.sinks import Sinks
from lengthen.methods.window import Window

NEAR, GROUP = 6, 3


def far_queries(pos):
    return pos // GROUP + NEAR - NEAR // GROUP


def far_keys(pos):
    return pos // GROUP


def self_extend() -> Scheme:
    branches = (Branch(Window(NEAR)), Branch(Beyond(NEAR), far_queries, far_keys))
    return Scheme(rotation=Rotary(Geometric(100.0), 8, interleaved=False), branches=branches)


def by_loops(q, k, v):
    """Self-Extend (arXiv:2401.01325, equation 4) pair by pair; q, k, v [T, D] float64."""
    tokens, size = q.shape
    theta = 100.0 ** (-np.arange(0, size, 2) / size)
    out = np.zeros_like(v)
    for m in range(tokens):
        scores = []
        for n in range(m + 1):
            steps = m - n if m - n < NEAR else m // GROUP + NEAR - NEAR // GROUP - n // GROUP
            a, b = q[m, : size // 2], q[m, size // 2 :]
            c, d = k[n, : size // 2], k[n, size // 2 :]
            turned = np.cos(steps * theta) * (a * c + b * d) - np.sin(steps * theta) * (b * c - a * d)
            scores.append(turned.sum() / math.sqrt(size))
        weights = np.exp(np.array(scores) - max(scores))
        out[m] = weights / weights.sum() @ v[: m + 1]
    return out


BRANCHED = ["dense", "blocked"]


@pytest.mark.parametrize("backend", BRANCHED)
@pytest.mark.parametrize("tokens", [1, NEAR - 1, NEAR, NEAR + 1, 40])
def test_two_branches_equal_the_paper_pair_by_pair(backend, tokens):
    g = torch.Generator().manual_seed(tokens)
    q, k, v = (torch.randn(1, 2, tokens, 8, dtype=torch.float64, generator=g) for _ in range(3))
    out = attend(self_extend(), q, k, v, backend=backend)
    for h in range(2):
        torch.testing.assert_close(out[0, h].numpy(), by_loops(*(t[0, h].numpy() for t in (q, k, v))), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", BRANCHED)
def test_rows_of_a_ragged_batch_equal_themselves_alone(backend):
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, 20, 8, dtype=torch.float64, generator=g) for _ in range(3))
    valid = torch.ones(2, 20, dtype=torch.bool)
    valid[1, :7] = False
    line = order(valid, None)
    out = attend(self_extend(), q, k, v, Layout(line, line), backend=backend)
    alone = by_loops(*(t[1, 0, 7:].numpy() for t in (q, k, v)))
    torch.testing.assert_close(out[1, 0, 7:].numpy(), alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", BRANCHED)
def test_gradients_by_finite_differences(backend):
    g = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, 2, 11, 8, dtype=torch.float64, generator=g, requires_grad=True) for _ in range(3))
    scheme = self_extend()
    assert torch.autograd.gradcheck(lambda *t: attend(scheme, *t, backend=backend), (q, k, v))


def test_keys_are_cached_turned_only_where_all_branches_turn_them_alike():
    assert not self_extend().caches_turned_keys
    rotation = Rotary(Geometric(), 8)
    same = (Branch(Window(4)), Branch(Beyond(4), far_queries))
    assert Scheme(rotation=rotation, branches=same).caches_turned_keys


def test_terms_that_read_all_scores_refuse_branches():
    class Rows(ScoreTerm):
        needs = Needs.ROW

        def forward(self, tile):
            return tile.scores

    with pytest.raises(UsageError, match="2 branches"):
        Scheme(terms=[Rows()], branches=(Branch(Window(4)), Branch(Beyond(4))))


PATTERNS = [
    Causal(),
    Everywhere(),
    Window(1),
    Window(5),
    Beyond(1),
    Beyond(5),
    BlockwiseCausal(4),
    Both(Causal(), Either(Window(3), Sinks(2))),
    Both(Window(6), Beyond(2)),
]


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("keys", [1, 7, 20])
def test_intervals_are_exactly_what_a_query_sees(pattern, keys):
    i = torch.arange(20)
    intervals = pattern.intervals(i, keys)
    j = torch.arange(keys)
    inside = ((intervals[..., :1] <= j) & (j < intervals[..., 1:])).any(1)
    assert torch.equal(inside, pattern(i[:, None], j[None]))
    assert int(intervals.min()) >= 0 and int(intervals.max()) <= keys


def test_consecutive_tokens_stay_in_order_at_other_positions():
    line = Coordinates.plain(6)
    moved = line.at(line.pos // 2)
    assert moved.in_order and not moved.is_run
    assert moved.take(slice(2, 5)).in_order
