"""S2 attention against its definition, head by head, in float64."""

import pytest
import torch

from lengthen.core import Causal, Coordinates, Layout, Refusal, UsageError, build
from lengthen.core.registry import Shape
from lengthen.tune import ShiftedSparse
from lengthen.tune.s2 import Groups, ShiftedAttention


def sees(head: int, heads: int, group: int, i: int, j: int) -> bool:
    """The paper's figure 2, read literally: groups begin at multiples of G, or G/2 further on for the second half of heads."""
    first = 0 if head < heads // 2 else group // 2
    of = lambda t: -1 if t < first else (t - first) // group
    return j <= i and of(i) == of(j)


def dense(q, k, v, group):
    """Softmax over the visible keys, one query and one head at a time."""
    _, heads, tokens, size = q.shape
    share, out = heads // k.shape[1], torch.zeros_like(q)
    for h in range(heads):
        for i in range(tokens):
            keys = [j for j in range(tokens) if sees(h, heads, group, i, j)]
            logits = torch.einsum("bd,bjd->bj", q[:, h, i], k[:, h // share, keys]) / size**0.5
            out[:, h, i] = torch.einsum("bj,bjd->bd", logits.softmax(-1), v[:, h // share, keys])
    return out


@pytest.mark.parametrize("heads, groups", [(4, 4), (4, 2), (9, 3), (6, 1), (2, 2)])
@pytest.mark.parametrize("tokens, group", [(16, 4), (13, 4), (8, 8), (9, 2), (3, 6)])
def test_it_is_the_papers_definition(heads, groups, tokens, group):
    g = torch.Generator().manual_seed(0)
    draw = lambda h: torch.randn(2, h, tokens, 8, generator=g, dtype=torch.float64)
    q, k, v = draw(heads), draw(groups), draw(groups)
    found = ShiftedAttention(group)(build("nope"), q, k, v, Layout.plain(tokens))
    torch.testing.assert_close(found, dense(q, k, v, group), rtol=0, atol=1e-12)


@pytest.mark.parametrize("tokens", [16, 18, 13])
def test_no_query_sees_a_later_key_and_the_ends_do_not_mix(tokens):
    """The gradient of each output says which values reached it; rolled groups would join the first tokens to the last."""
    g = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, 2, tokens, 8, generator=g, dtype=torch.float64) for _ in range(3))
    v.requires_grad_(True)
    out = ShiftedAttention(4)(build("nope"), q, k, v, Layout.plain(tokens))
    reach = torch.zeros(2, tokens, tokens, dtype=torch.bool)
    for h in range(2):
        for i in range(tokens):
            (grad,) = torch.autograd.grad(out[0, h, i].sum(), v, retain_graph=True)
            reach[h, i] = grad[0, h].abs().sum(-1) > 0
    assert not reach.triu(1).any()
    assert not reach[1, -2:, :2].any() and not reach[1, :2, -2:].any()
    assert reach[1, 2, 2] and not reach[1, 2, 1], "the first shifted group has half the size"
    assert reach[0].diagonal().all() and reach[1].diagonal().all()


@pytest.mark.parametrize("shift", [0, 3])
def test_spans_and_intervals_say_exactly_what_the_pattern_shows(shift):
    pattern, keys = Groups(6, shift), 20
    i, j = torch.arange(keys), torch.arange(keys)
    shown = pattern(i[:, None], j[None])
    for row, found in zip(shown, pattern.intervals(i, keys), strict=True):
        inside = torch.zeros(keys, dtype=torch.bool)
        for start, stop in found.tolist():
            inside[start:stop] = True
        assert torch.equal(inside, row)
    for first in range(keys):
        for last in range(first, keys):
            hull = torch.zeros(keys, dtype=torch.bool)
            for start, stop in pattern.spans(first, last, keys):
                hull[start:stop] = True
            assert not (shown[first : last + 1].any(0) & ~hull).any()
    assert pattern.causal and not pattern.relative


def test_rotation_stands_at_the_positions_of_the_whole_row():
    """RoPE's scores depend on distances, so groups must not restart positions; with one group it is causal attention."""
    rope = build("rope", Shape(4, 4, 8, 32, 16))
    g = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(1, 4, 12, 8, generator=g, dtype=torch.float64) for _ in range(3))
    at = Coordinates.plain(12).at(torch.arange(12)[None] * 7)
    found = ShiftedAttention(4)(rope, q, k, v, Layout(at, at))
    theta = 10_000.0 ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    turn = torch.polar(torch.ones(12, 4, dtype=torch.float64), torch.arange(12)[:, None] * 7 * theta)
    turned = lambda x: torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (4, 2))) * turn).flatten(-2)
    torch.testing.assert_close(found, dense(turned(q), turned(k), v, 4), rtol=0, atol=1e-10)


def test_what_it_cannot_serve_is_refused():
    q = torch.randn(1, 4, 8, 8)
    with pytest.raises(Refusal, match="only turns"):
        ShiftedAttention(4)(build("alibi"), q, q, q, Layout.plain(8))
    with pytest.raises(Refusal, match="one head"):
        ShiftedAttention(4)(build("nope"), q[:, :1], q[:, :1], q[:, :1], Layout.plain(8))
    for bad in (3, 130):
        with pytest.raises(UsageError, match=rf"at most 64, got {bad}"):
            ShiftedSparse(16, 64, group=bad)
    assert ShiftedSparse(16, 64).size == 16 and Causal().causal
