"""Every backend against attention written out in float64: values and gradients, on every layout that it serves."""

from functools import cache

import numpy as np
import pytest
import torch
from attention_oracle import (
    SHOWN,
    Absolute,
    Content,
    Fixed,
    Learned,
    Mixing,
    OnValues,
    RowMean,
    Slope,
    Stream,
    attention,
    clipped,
    mask,
)

from lengthen.backends import BACKENDS, attend, choose, refusal
from lengthen.backends.blocked import Blocked
from lengthen.backends.native.build import kernel, why_off
from lengthen.backends.sdpa import SDPA
from lengthen.core import Coordinates, Everywhere, Layout, Refusal, Scheme, UnknownNameError, UsageError, order

EXACT = {
    "dense": BACKENDS["dense"],
    "native": BACKENDS["native"],
    "sdpa": SDPA(),
    "sdpa in blocks": SDPA(short=0),
    "sdpa in small blocks": SDPA(short=0, rows=3, masks=200),
    "blocked": Blocked(),
    "blocked small": Blocked(rows=3, columns=4, scores=120),
}
"""Backends with gradients; small blocks put borders everywhere."""
if why_off() is not None:
    del EXACT["native"]


def draw(batch, heads, groups, queries, keys, size=8, dtype=torch.float64):
    torch.manual_seed(queries * 1000 + keys)
    shapes = ((heads, queries), (groups, keys), (groups, keys))
    return [torch.randn(batch, h, n, size, dtype=dtype).requires_grad_() for h, n in shapes]


def gradients(out, inputs):
    """Gradients of sum(out * cos(index)), zeros where an input is not reached. The cosines are exact in bf16."""
    weight = torch.arange(out.numel(), dtype=torch.float64).cos().bfloat16().to(out.dtype).view(out.shape)
    found = torch.autograd.grad(out, inputs, weight, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True)]


def agree(backend, scheme, inputs, layout, bias, seen, streams=(), tol=1e-10):
    """Whether a backend gives the written-out attention and all its gradients."""
    q, k, v = inputs
    plan = scheme.plan(q, k, v, layout, q_streams=streams[:1], k_streams=streams[1:])
    why = refusal(backend, plan)
    if backend is BACKENDS["native"] and why is not None:
        # Without a compiler it serves nothing; else only these, which it says it cannot.
        assert not kernel().built or plan.needs > backend.serves or layout.q.pos.is_floating_point(), why
        pytest.skip(why)
    assert why is None
    learned = list(scheme.parameters())
    out = backend(plan)
    expected = attention(q, k, v, bias(), seen, plan.scale)
    torch.testing.assert_close(out, expected, rtol=tol, atol=tol)
    every = [*inputs, *learned, *(s for s in streams if s is not None and s.requires_grad)]
    for mine, theirs in zip(gradients(out, every), gradients(expected, every), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=tol, atol=tol)


def line(queries, keys):
    """Order of the last `queries` of `keys` tokens, and of all."""
    return np.arange(keys - queries, keys)[None], np.arange(keys)[None]


@cache
def seen_on_a_run(pattern, queries, keys):
    """What a pattern shows the last `queries` of `keys` tokens."""
    return mask(SHOWN[pattern][1], *line(queries, keys))


def distance_bias(terms, i, j):
    """The scores of Learned, Slope and Fixed terms at positions i and j, written out; [B, H, Q, K]."""
    distance = torch.from_numpy(np.abs(i[:, :, None] - j[:, None, :]).astype(np.float64))

    def one(term):
        if isinstance(term, Learned):
            return term.table[:, clipped(i, j)].movedim(0, 1)
        rates = term.slope if isinstance(term, Slope) else 1 / torch.arange(1.0, term.heads + 1, dtype=torch.float64)
        return -rates[:, None, None] * (torch.log1p(distance) if isinstance(term, Slope) else distance)[:, None]

    return lambda: sum((one(t) for t in terms), torch.zeros(1, dtype=torch.float64))


TERMS = {
    "none": lambda heads: [],
    "fixed": lambda heads: [Fixed(heads)],
    "learned": lambda heads: [Learned(heads)],
    "two": lambda heads: [Learned(heads), Slope(heads)],
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("pattern", SHOWN)
def test_patterns_and_distance_terms(name, terms, pattern):
    for batch, heads, groups, queries, keys in (
        (2, 3, 3, 13, 13),
        (1, 4, 2, 5, 19),
        (2, 4, 2, 1, 9),
        (1, 2, 1, 1, 1),
        (1, 2, 2, 2, 2),
    ):
        added, rule = TERMS[terms](heads), SHOWN[pattern][0]
        i, j = line(queries, keys)
        inputs = draw(batch, heads, groups, queries, keys)
        seen = seen_on_a_run(pattern, queries, keys)
        agree(
            EXACT[name],
            Scheme(terms=added, pattern=rule),
            inputs,
            Layout.plain(queries, keys),
            distance_bias(added, i, j),
            seen,
        )


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("terms", TERMS)
def test_bidirectional(name, terms):
    added, (i, j) = TERMS[terms](2), line(11, 11)
    scheme = Scheme(terms=added, pattern=Everywhere())
    seen = np.ones((1, 11, 11), dtype=bool)
    agree(EXACT[name], scheme, draw(2, 2, 1, 11, 11), Layout.plain(11), distance_bias(added, i, j), seen)


@pytest.mark.parametrize("name", ["sdpa", "sdpa in blocks", "blocked"])
@pytest.mark.parametrize("pattern", ["causal", "window 5", "blocks", "sinks"])
@pytest.mark.parametrize("queries", [130, 700])
def test_lengths_across_block_borders(name, pattern, queries):
    added, (i, j) = [Learned(2)], line(queries, 700)
    rule = SHOWN[pattern][0]
    seen = seen_on_a_run(pattern, queries, 700)
    scheme = Scheme(terms=added, pattern=rule)
    agree(
        EXACT[name], scheme, draw(1, 2, 1, queries, 700, size=4), Layout.plain(queries, 700), distance_bias(added, i, j), seen
    )


PADDED = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0], [0] * 11, [1] * 11]).bool()
DOCS = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2], [0] * 11, [3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5], [0] * 5 + [1] * 6])


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("terms", ["none", "two"])
@pytest.mark.parametrize("pattern", ["causal", "window 5", "sinks", "away"])
@pytest.mark.parametrize("what", ["padded", "packed", "both", "last rows"])
def test_padding_and_documents(name, terms, pattern, what):
    valid, doc = (None if what == "packed" else PADDED), (None if what in ("padded", "last rows") else DOCS)
    every = order(valid, doc)
    rows = slice(8, None) if what == "last rows" else slice(None)
    new = every.take(rows)
    i, j = new.idx.numpy(), every.idx.numpy()
    added, (rule, shown) = TERMS[terms](4), SHOWN[pattern]
    docs = (None, None) if doc is None else (doc.numpy()[:, rows], doc.numpy())
    inputs = draw(4, 4, 2, new.tokens, every.tokens)
    seen = mask(shown, i, j, *docs)
    agree(EXACT[name], Scheme(terms=added, pattern=rule), inputs, Layout(new, every), distance_bias(added, i, j), seen)


@pytest.mark.parametrize("name", EXACT)
def test_real_positions(name):
    idx = torch.arange(9)[None]
    pos = torch.rand(2, 9, dtype=torch.float64).cumsum(1) * 3
    where = Coordinates(idx.expand(2, -1), pos)
    added = [Slope(2)]
    seen = seen_on_a_run("causal", 9, 9)
    agree(
        EXACT[name],
        Scheme(terms=added),
        draw(2, 2, 2, 9, 9),
        Layout(where, where),
        distance_bias(added, pos.numpy(), pos.numpy()),
        seen,
    )


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("pattern", ["causal", "sinks"])
def test_terms_of_both_positions(name, pattern):
    term, (rule, shown), (i, j) = Absolute(3), SHOWN[pattern], line(6, 12)
    sines = torch.from_numpy(np.sin(i)[:, :, None] * np.cos(j)[:, None, :])
    bias = lambda: term.weight[:, None, None] * sines[:, None]
    agree(EXACT[name], Scheme(terms=[term], pattern=rule), draw(2, 3, 1, 6, 12), Layout.plain(6, 12), bias, mask(shown, i, j))


DEEP = {n: b for n, b in EXACT.items() if b.value_terms}
"""Backends that show content, scores and rows."""


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("pattern", ["causal", "blocks", "away"])
def test_terms_of_content(name, pattern):
    term, (rule, shown), (i, j) = Content(8), SHOWN[pattern], line(7, 15)
    inputs = q, k, _ = draw(2, 4, 2, 7, 15)
    rows = lambda: term.table[clipped(i, j)[0]]
    bias = lambda: torch.einsum("bhqd,qkd->bhqk", q, rows()) + (k[:, [0, 0, 1, 1]] @ term.u)[:, :, None]
    agree(DEEP[name], Scheme(terms=[term], pattern=rule), inputs, Layout.plain(7, 15), bias, mask(shown, i, j))


@pytest.mark.parametrize("name", DEEP)
def test_terms_with_streams(name):
    term = Stream()
    keys = torch.randn(2, 15, 1, dtype=torch.float64).requires_grad_()
    bias = lambda: term.weight * (keys[:, None, 8:, None, 0] - keys[:, None, None, :, 0])
    seen = seen_on_a_run("causal", 7, 15)
    agree(DEEP[name], Scheme(terms=[term]), draw(2, 2, 2, 7, 15), Layout.plain(7, 15), bias, seen, streams=(keys[:, 8:], keys))


@pytest.mark.parametrize("name", DEEP)
def test_terms_of_scores(name):
    first, term, (i, j) = Learned(4), Mixing(4), line(7, 15)
    inputs = q, k, _ = draw(2, 4, 2, 7, 15)

    def bias():
        near = first.table[:, clipped(i, j)].movedim(0, 1)
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k[:, [0, 0, 1, 1]]) * 8**-0.5 + near
        return near + torch.einsum("hg,bgqk->bhqk", term.mix, scores.tanh())

    scheme = Scheme(terms=[first, term])
    agree(DEEP[name], scheme, inputs, Layout.plain(7, 15), bias, mask(SHOWN["causal"][1], i, j))


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("pattern", ["causal", "sinks", "away"])
def test_terms_of_whole_rows(name, pattern):
    term, (rule, shown), (i, j) = RowMean(), SHOWN[pattern], line(7, 15)
    inputs = q, k, _ = draw(2, 4, 2, 7, 15)
    seen = mask(shown, i, j)

    def bias():
        gates = (torch.einsum("bhqd,bhkd->bhqk", q, k[:, [0, 0, 1, 1]]) * 8**-0.5).sigmoid() * torch.from_numpy(seen)[:, None]
        return term.weight * gates * gates.sum(-1, keepdim=True)

    agree(DEEP[name], Scheme(terms=[term], pattern=rule), inputs, Layout.plain(7, 15), bias, seen)


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("pattern", ["causal", "window 5", "away"])
def test_value_terms(name, pattern):
    term, (rule, shown), (i, j) = OnValues(8), SHOWN[pattern], line(7, 15)
    q, k, v = draw(2, 4, 2, 7, 15)
    plan = Scheme(value_terms=[term], pattern=rule).plan(q, k, v, Layout.plain(7, 15))
    seen = mask(shown, i, j)
    rows = term.table[clipped(i, j)[0]]
    # Values per query: one attention per query row, whose values are v plus that row's vectors.
    expected = torch.cat(
        [
            attention(q[:, :, [r]], k[:, [0, 0, 1, 1]], v[:, [0, 0, 1, 1]] + rows[r], 0.0, seen[:, [r]], 8**-0.5)
            for r in range(7)
        ],
        dim=2,
    )
    out = DEEP[name](plan)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    inputs = [q, k, v, term.table]
    for mine, theirs in zip(gradients(out, inputs), gradients(expected, inputs), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("queries", [40, 9])
def test_bf16_is_as_close_as_bf16_can_be(name, terms, queries):
    """Rounding the inputs is the caller's; what comes on top stays within a few units of 2^-9 of the largest output."""
    added, (i, j) = TERMS[terms](4), line(queries, 40)
    rounded = [x.detach().bfloat16().requires_grad_() for x in draw(2, 4, 2, queries, 40)]
    exact = [x.detach().double().requires_grad_() for x in rounded]
    scheme = Scheme(terms=added)
    out = EXACT[name](scheme.plan(*rounded, Layout.plain(queries, 40)))
    expected = attention(*exact, distance_bias(added, i, j)(), seen_on_a_run("causal", queries, 40), 8**-0.5)
    assert out.dtype == torch.bfloat16
    assert (out - expected).abs().max() < 4 * 2**-9 * expected.abs().max()
    learned = list(scheme.parameters())
    for mine, theirs in zip(gradients(out, [*rounded, *learned]), gradients(expected, [*exact, *learned]), strict=True):
        assert (mine - theirs).abs().max() < 10 * 2**-9 * theirs.abs().max()


@pytest.mark.parametrize("name", ["dense", "sdpa", "sdpa in blocks", "blocked"])
def test_autocast_does_not_round_scores(name):
    """A bias of 1000 - d has distances that bf16 cannot tell apart; only float32 scores pick the right key."""
    q, k, v = (x.detach().float() for x in draw(1, 2, 2, 300, 300))
    scheme = Scheme(terms=[Fixed(2)])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = EXACT[name](scheme.plan(q, k, v, Layout.plain(300)))
    i, j = line(300, 300)
    expected = attention(
        q.double(), k.double(), v.double(), distance_bias(scheme.terms, i, j)(), seen_on_a_run("causal", 300, 300), 8**-0.5
    )
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", EXACT)
def test_one_layout_serves_layers_with_and_without_gradients(name):
    added, layout, inputs = [Learned(2)], Layout.plain(9), draw(1, 2, 2, 9, 9)
    scheme, (i, j) = Scheme(terms=added), line(9, 9)
    with torch.no_grad():
        EXACT[name](scheme.plan(*inputs, layout))
    agree(EXACT[name], scheme, inputs, layout, distance_bias(added, i, j), seen_on_a_run("causal", 9, 9))


@pytest.mark.parametrize(
    ("terms", "pattern", "what"),
    [
        ("none", "causal", "plain"),
        ("two", "causal", "plain"),
        ("learned", "window 5", "chunk"),
        ("fixed", "sinks", "chunk"),
        ("two", "blocks", "padded"),
        ("none", "away", "padded"),
        ("fixed", "causal", "packed"),
        ("two", "sparse sinks", "packed"),
    ],
)
def test_flex_forward(terms, pattern, what):
    added, (rule, shown) = TERMS[terms](4), SHOWN[pattern]
    layout = {
        "plain": lambda: Layout.plain(11),
        "chunk": lambda: Layout.plain(4, 11),
        "padded": lambda: Layout(order(PADDED, None), order(PADDED, None)),
        "packed": lambda: Layout(order(None, DOCS), order(None, DOCS)),
    }[what]()
    q, k, v = (x.detach().float() for x in draw(4, 4, 2, layout.q.tokens, 11))
    i, j = layout.q.idx.numpy(), layout.k.idx.numpy()
    docs = (DOCS.numpy(), DOCS.numpy()) if what == "packed" else (None, None)
    expected = attention(q.double(), k.double(), v.double(), distance_bias(added, i, j)(), mask(shown, i, j, *docs), 8**-0.5)
    with torch.no_grad():
        out = attend(Scheme(terms=added, pattern=rule), q, k, v, layout, backend="flex")
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


def test_refusals_say_why():
    q, k, v = draw(1, 2, 2, 4, 4)
    layout = Layout.plain(4)
    with pytest.raises(Refusal, match=r"Content needs content, and the sdpa backend shows at most positions"):
        choose(Scheme(terms=[Content(8)]).plan(q, k, v, layout), "sdpa")
    with pytest.raises(Refusal, match="OnValues adds to the values, which the flex backend cannot"):
        choose(Scheme(value_terms=[OnValues(8)]).plan(q, k, v, layout), "flex")
    with pytest.raises(Refusal, match="no backward on a CPU"):
        choose(Scheme().plan(q, k, v, layout), "flex")
    with pytest.raises(Refusal, match="Absolute needs positions"):
        choose(Scheme(terms=[Absolute(2)]).plan(q, k, v, layout), "flex")
    with torch.no_grad():
        half = Coordinates(layout.q.idx, layout.q.idx / 2)
        with pytest.raises(Refusal, match="not whole"):
            choose(Scheme(terms=[Fixed(2)]).plan(q, k, v, Layout(half, half)), "flex")
        far = Coordinates(layout.q.idx, layout.q.idx * 10**7)
        with pytest.raises(Refusal, match="tabulate 60000001 distances"):
            choose(Scheme(terms=[Fixed(2)]).plan(q, k, v, Layout(far, far)), "flex")
    with pytest.raises(UnknownNameError, match="Did you mean 'dense'"):
        choose(Scheme().plan(q, k, v, layout), "dens")


def test_the_first_backend_that_serves_is_chosen():
    inputs, layout = draw(1, 2, 2, 4, 4), Layout.plain(4)
    for scheme, name in (
        (
            Scheme(terms=[Learned(2)]),
            "native" if BACKENDS["native"].refusal(Scheme().plan(*inputs, layout)) is None else "sdpa",
        ),
        (Scheme(terms=[Absolute(2)]), "sdpa"),
        (Scheme(terms=[Mixing(2)]), "blocked"),
        (Scheme(value_terms=[OnValues(8)]), "blocked"),
    ):
        assert choose(scheme.plan(*inputs, layout)).name == name


def test_large_scores_do_not_overflow():
    """Scores of 1e4 nats: weights are 0 or 1, and the right value comes out."""
    q, k = torch.ones(1, 1, 6, 4), torch.arange(6.0)[None, None, :, None].expand(1, 1, 6, 4) * 1e4
    v = torch.arange(24.0).view(1, 1, 6, 4)
    for backend in EXACT.values():
        assert torch.equal(backend(Scheme().plan(q, k, v, Layout.plain(6))), v)


def test_blocks_keep_no_mask_of_the_plane():
    """No tensor that a layout remembers after a long forward grows with Q times K."""
    q, k, v = draw(1, 2, 2, 600, 600, size=4)
    for backend in (EXACT["sdpa in blocks"], EXACT["blocked"]):
        for rule in (SHOWN["causal"][0], SHOWN["sinks"][0]):
            layout = Layout.plain(600)
            backend(Scheme(terms=[Learned(2)], pattern=rule).plan(q, k, v, layout)).sum().backward()
            held = [x for x in layout.memo.values() if isinstance(x, torch.Tensor)]
            assert all(x.numel() < 600 * 20 for x in held) and not any(isinstance(x, Layout) for x in layout.memo.values())


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("terms", TERMS)
def test_channels_need_not_lie_side_by_side(name, terms):
    """A kernel that takes them to would read other numbers, without a word."""
    (added, (i, j)), inputs = (TERMS[terms](2), line(5, 9)), draw(2, 2, 1, 5, 9)
    apart = [torch.stack([x, x], -1)[..., 0].detach().requires_grad_() for x in inputs]
    assert all(x.stride(-1) == 2 for x in apart)
    agree(
        EXACT[name], Scheme(terms=added), apart, Layout.plain(5, 9), distance_bias(added, i, j), seen_on_a_run("causal", 5, 9)
    )


@pytest.mark.parametrize(
    ("q", "k", "v", "said"),
    [
        ((4, 5, 8), (4, 5, 8), (4, 5, 8), r"takes \[rows, heads, tokens, channels\]"),
        ((1, 4, 0, 8), (1, 4, 5, 8), (1, 4, 5, 8), r"at least one of each, got q \[1, 4, 0, 8\]"),
        ((0, 4, 5, 8), (0, 4, 5, 8), (0, 4, 5, 8), "at least one of each"),
        ((1, 4, 5, 8), (1, 4, 5, 8), (1, 4, 6, 8), "Keys and values must have the same"),
        ((1, 4, 5, 8), (1, 4, 5, 8), (1, 2, 5, 8), "Keys and values must have the same"),
        ((2, 4, 5, 8), (1, 4, 5, 8), (1, 4, 5, 8), "Queries and keys must have the same"),
        ((1, 4, 5, 8), (1, 4, 5, 6), (1, 4, 5, 8), "Queries and keys must have the same"),
        ((1, 4, 5, 8), (1, 3, 5, 8), (1, 3, 5, 8), "4 query heads cannot share 3"),
        ((1, 4, 6, 8), (1, 4, 5, 8), (1, 4, 5, 8), "got 6 and 5"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(q, k, v, said):
    with pytest.raises(UsageError, match=said):
        attend(Scheme(), torch.zeros(q), torch.zeros(k), torch.zeros(v))


def test_whole_numbers_and_layouts_of_other_rows_are_refused():
    ones, where = torch.ones(2, 4, 5, 8), Coordinates(*[torch.arange(5).expand(3, 5)] * 2)
    with pytest.raises(UsageError, match=r"takes real numbers, got torch.int64"):
        attend(Scheme(), ones.long(), ones, ones)
    with pytest.raises(UsageError, match="stands for 3 and 3 rows, got 2"):
        attend(Scheme(), ones, ones, ones, Layout(where, where))
