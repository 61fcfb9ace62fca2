"""The stock backend's own ways: merged pieces, warps on tiles, views of tables, what is not finite and not seen, memory."""

from functools import cache

import pytest
import torch
from attention_oracle import Learned, Near, OwnAndPrevious, Slope, attention, clipped
from torch.utils._python_dispatch import TorchDispatchMode

from lengthen.backends import attend
from lengthen.backends.sdpa import SDPA
from lengthen.core import Branch, Causal, Coordinates, Layout, Scheme, Shape, build, order
from lengthen.core.patterns import Beyond, Pattern
from lengthen.methods.fire import FIRE

WAYS = {"as it is": SDPA(), "blocks": SDPA(short=0), "small blocks": SDPA(short=0, rows=3, masks=200)}
VALID = torch.tensor([[0] * 9 + [1] * 31, [1] * 33 + [0] * 7, [1] * 40]).bool()
DOC = torch.tensor([[0] * 12 + [1] * 20 + [2] * 8, [0] * 40, [4] * 3 + [5] * 37])
TOKENS = 40


@cache
def layouts() -> dict[str, Layout]:
    padded, packed, both = order(VALID, None), order(None, DOC), order(VALID, DOC)
    rows = slice(29, None)
    return {
        "plain": Layout.plain(TOKENS),
        "chunk": Layout.plain(11, TOKENS),
        "one query": Layout.plain(1, TOKENS),
        "padded": Layout(padded, padded),
        "packed": Layout(packed, packed),
        "both": Layout(both, both),
        "padded chunk": Layout(padded.take(rows), padded),
        "padded, one query": Layout(padded.take(slice(39, None)), padded),
    }


def draw(layout, heads=4, groups=2, size=8, batch=3, dtype=torch.float64):
    g = torch.Generator().manual_seed(layout.q.tokens)
    shapes = (heads, layout.q.tokens), (groups, layout.k.tokens), (groups, layout.k.tokens)
    return [torch.randn(batch, h, n, size, dtype=dtype, generator=g).requires_grad_() for h, n in shapes]


def places(layout):
    """Query and key order [B|1, Q, 1] and [B|1, 1, K]."""
    return layout.q.idx[:, :, None], layout.k.idx[:, None, :]


def together(layout):
    """bool [B|1, Q, K]: both real, in one document."""
    i, j = places(layout)
    same = (i >= 0) & (j >= 0)
    return same if layout.k.doc is None else same & (layout.q.doc[:, :, None] == layout.k.doc[:, None])


def agree(scheme, way, inputs, layout, expected, tol=1e-10):
    """Values and every gradient."""
    out = WAYS[way](scheme.plan(*inputs, layout))
    torch.testing.assert_close(out, expected, rtol=tol, atol=tol)
    every, weight = [*inputs, *scheme.parameters()], torch.arange(out.numel(), dtype=out.dtype).cos().view(out.shape)
    mine, theirs = (torch.autograd.grad(x, every, weight, allow_unused=True) for x in (out, expected))
    for a, b, x in zip(mine, theirs, every, strict=True):
        zero = torch.zeros_like(x)
        torch.testing.assert_close(zero if a is None else a, zero if b is None else b, rtol=tol, atol=tol)


def turned_scores(q, k, distance):
    """Rotary scores at any distances [B|1, Q, K], as a sum over the frequencies of interleaved pairs: [B, H, Q, K]."""
    pairs = q.shape[-1] // 2
    rates = 10_000.0 ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    q, k = (torch.complex(x[..., ::2], x[..., 1::2]) for x in (q, k))
    angle = (distance.double()[..., None] * rates).expand(len(q), -1, -1, -1)
    return torch.einsum("bhqr,bhkr,bqkr->bhqk", q, k.conj(), torch.polar(torch.ones_like(angle), angle)).real


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", layouts())
def test_self_extend_turned_by_true_and_by_grouped_distances(way, where):
    layout = layouts()[where]
    scheme = build("rope+self_extend:window=7,group=3", Shape(4, 2, 8, 32, 64))
    q, k, v = inputs = draw(layout)
    i, j = places(layout)
    distance = torch.where(i - j < 7, i - j, i // 3 - j // 3 + 7 - 7 // 3)
    spread = [x.repeat_interleave(2, 1) for x in (k, v)]
    scores = turned_scores(q, spread[0], distance) * 8**-0.5
    seen = (together(layout) & (j <= i)).expand(3, -1, -1).numpy()
    nothing = torch.zeros_like(q), torch.zeros_like(spread[0])
    agree(scheme, way, inputs, layout, attention(*nothing, spread[1], scores, seen, 1.0))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", layouts())
@pytest.mark.parametrize("pattern", [Causal(), Near(5)], ids=["causal", "window"])
def test_without_terms_rows_of_the_batch_may_see_all_or_little(way, where, pattern):
    layout = layouts()[where]
    inputs, (i, j) = draw(layout), places(layout)
    seen = together(layout) & (j <= i) & ((i - j < 5) if isinstance(pattern, Near) else True)
    agree(Scheme(pattern=pattern), way, inputs, layout, attention(*inputs, 0.0, seen.expand(3, -1, -1).numpy(), 8**-0.5))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", layouts())
@pytest.mark.parametrize("heads", [4, 5])
def test_branches_with_learned_tables_at_their_own_distances(way, where, heads):
    layout, groups = layouts()[where], 2 if heads == 4 else 1
    table, slope = Learned(heads), Slope(heads)
    thirds = lambda pos: pos // 3
    scheme = Scheme(terms=[table, slope], branches=(Branch(Near(6)), Branch(Beyond(6), thirds, thirds)))
    inputs = draw(layout, heads, groups)
    i, j = places(layout)
    near = i - j < 6
    distance = torch.where(near, i - j, i // 3 - j // 3)
    a, b = (clipped(*(x.numpy()[:, :, 0], y.numpy()[:, 0])) for x, y in ((i, j), (i // 3, j // 3)))
    at = torch.where(near, a, b)
    bias = table.table[:, at].movedim(0, 1) - slope.slope[:, None, None] * distance[:, None].abs().double().log1p()
    seen = (together(layout) & (j <= i)).expand(3, -1, -1).numpy()
    agree(scheme, way, inputs, layout, attention(*inputs, bias, seen, 8**-0.5))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", layouts())
@pytest.mark.parametrize("pattern", [Causal(), OwnAndPrevious(7)], ids=["causal", "blocks"])
def test_fire_is_its_network_pair_by_pair(way, where, pattern):
    """Knots on both sides of zero, one beyond every pair, and one hidden unit that never changes sides."""
    torch.manual_seed(5)
    layout, term = layouts()[where], FIRE(4, threshold=11.0, hidden=6).double()
    with torch.no_grad():
        term.up.bias[0], term.up.weight[1], term.up.bias[2] = 40.0, 0.0, -0.3 * term.up.weight[2, 0]
    inputs = draw(layout)
    i, j = places(layout)
    psi = lambda x: torch.log(torch.abs(term.c * x) + 1)
    reach = torch.maximum(i.double(), (term.multiplier * 11.0).abs())
    x = (psi((i - j).double()) / (psi(reach) + 1e-6))[..., None]
    hidden = (x * term.up.weight[:, 0] + term.up.bias).clamp_min(0)
    bias = (hidden @ term.down.weight.T + term.down.bias).movedim(-1, 1)
    seen = together(layout) & (j <= i)
    seen = seen & (i // 7 - j // 7 <= 1) if isinstance(pattern, OwnAndPrevious) else seen
    expected = attention(*inputs, bias, seen.expand(3, -1, -1).numpy(), 8**-0.5)
    agree(Scheme(terms=[term], pattern=pattern), way, inputs, layout, expected, tol=1e-9)


def written_out(q, k, v, bias, seen):
    """softmax(q k^T / sqrt(D) + bias) v in float64; what is not seen is left out, not multiplied by zero."""
    q, k, v = (t.double() for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    weights = (q @ k.mT * q.shape[-1] ** -0.5 + bias).masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num()
    return weights @ v


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", ["nope", "alibi", "window:tokens=5", "rerope:window=5", "fire"])
def test_what_is_not_finite_and_not_seen_is_not_felt(poison, way, method):
    """A poisoned key and a poisoned value: earlier queries, and later ones beyond a window, are as if they were finite."""
    torch.manual_seed(1)
    layout, scheme = Layout.plain(TOKENS), build(method, Shape(4, 2, 8, 32, 64)).double()
    clean = draw(layout)
    dirty = [x.detach().clone() for x in clean]
    dirty[1][:, 1, 20] = poison
    dirty[2][:, 1, 21] = poison
    dirty = [x.requires_grad_() for x in dirty]
    untouched = torch.ones(4, TOKENS, dtype=torch.bool)
    untouched[2:, 20 : 26 if method.startswith("window") else TOKENS] = False
    outs = [WAYS[way](scheme.plan(*x, layout)) for x in (clean, dirty)]
    chosen = [out[:, untouched] for out in outs]
    torch.testing.assert_close(chosen[1], chosen[0], rtol=1e-11, atol=1e-11)
    assert outs[1][:, ~untouched].isnan().any(-1).all()
    # A loss over what is untouched alone.
    weight = torch.randn(chosen[0].shape, generator=torch.Generator().manual_seed(3)).double()
    for a, b in zip(*(torch.autograd.grad(c, x, weight) for c, x in zip(chosen, (clean, dirty), strict=True)), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-10, atol=1e-10)
    every = torch.autograd.grad(WAYS[way](scheme.plan(*dirty, layout)).sum(), dirty)
    assert every[0][:, 2:, 21].isnan().all()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", ["nope", "alibi", "self_extend:window=7,group=3"])
def test_padding_that_is_not_finite_does_not_leak(way, method):
    layout, scheme, real = layouts()["both"], build(method, Shape(4, 2, 8, 32, 64)), VALID[:, None, :, None]
    clean = draw(layout)
    dirty = [torch.where(real, x.detach(), torch.nan).requires_grad_() for x in clean]
    outs = [WAYS[way](scheme.plan(*x, layout)) for x in (clean, dirty)]
    torch.testing.assert_close(torch.where(real, outs[1], 0.0), torch.where(real, outs[0], 0.0), rtol=1e-11, atol=1e-11)
    assert outs[1].isfinite().all()
    weight = real.expand_as(outs[0]).double()
    for a, b in zip(*(torch.autograd.grad(out, x, weight) for out, x in zip(outs, (clean, dirty), strict=True)), strict=True):
        torch.testing.assert_close(b, torch.where(real, a, 0.0), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "method", ["nope", "alibi", "kerple", "t5", "sandwich", "window:tokens=200", "self_extend:window=200", "fire"]
)
@pytest.mark.parametrize(("heads", "size"), [(5, 24), (2, 80)])
def test_at_most_twice_the_error_of_pytorchs_own_kernel(method, heads, size):
    """Against plain causal attention there, float32 at 700 tokens."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, heads, 700, size) for _ in range(3))
    scheme, layout = build(method, Shape(heads, heads, size, heads * size, 1024)), Layout.plain(700)
    with torch.no_grad():
        exact = scheme.double().plan(q.double(), k.double(), v.double(), Layout.plain(700))
        parts, (i, j) = exact.branches or (exact,), places(layout)
        bias = sum((t(tile) for t, tile in zip(parts[0].terms, parts[0].tiles(), strict=True)), torch.zeros(()))
        expected = written_out(q, k, v, bias, (j <= i) & ((i - j < 200) if "window:" in method else True))
        mine = (attend(scheme.float(), q, k, v, backend="sdpa") - expected).abs().max()
        theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        assert mine <= 2 * (theirs - written_out(q, k, v, 0.0, j <= i)).abs().max()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("step", [3, 0.25])
@pytest.mark.parametrize("queries", [1, 11, 40])
def test_positions_that_step_evenly_by_other_than_one(way, step, queries):
    line = Coordinates(torch.arange(TOKENS)[None], torch.arange(TOKENS)[None] * step)
    layout, slope, fire = (
        Layout(line.take(slice(TOKENS - queries, None)), line),
        Slope(4),
        FIRE(4, threshold=11.0, hidden=6).double(),
    )
    inputs, seen = draw(layout), places(layout)[1] <= places(layout)[0]
    i, j = layout.q.pos[:, :, None].double(), layout.k.pos[:, None].double()
    psi = lambda x: torch.log(torch.abs(fire.c * x) + 1)
    x = (psi(i - j) / (psi(torch.maximum(i, (fire.multiplier * 11.0).abs())) + 1e-6))[..., None]
    network = ((x * fire.up.weight[:, 0] + fire.up.bias).clamp_min(0) @ fire.down.weight.T + fire.down.bias).movedim(-1, 1)
    bias = network - slope.slope[:, None, None] * (i - j)[:, None].abs().log1p()
    expected = attention(*inputs, bias, seen.numpy(), 8**-0.5)
    agree(Scheme(terms=[slope, fire]), way, inputs, layout, expected, tol=1e-9)


class Odd(Pattern):
    """Every second key, the query's own included: a function of the distance, but not a few intervals."""

    causal = True

    def __call__(self, i, j):
        return (j <= i) & ((i - j) % 2 == 0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", ["plain", "chunk", "one query", "both"])
def test_patterns_without_intervals(way, where):
    layout, term = layouts()[where], Learned(4)
    inputs, (i, j) = draw(layout), places(layout)
    seen = (together(layout) & (j <= i) & ((i - j) % 2 == 0)).expand(3, -1, -1).numpy()
    bias = term.table[:, clipped(i.numpy()[:, :, 0], j.numpy()[:, 0])].movedim(0, 1)
    agree(Scheme(terms=[term], pattern=Odd()), way, inputs, layout, attention(*inputs, bias, seen, 8**-0.5))


class Largest(TorchDispatchMode):
    """The most memory behind any tensor that an operation returns, in bytes."""

    bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, torch.Tensor):
                self.bytes = max(self.bytes, x.untyped_storage().nbytes())
        return out


@pytest.mark.parametrize(
    "method", ["alibi", "t5", "fire", "bca:block=64", "alibi+bca:block=64", "self_extend:window=64", "sinks:window=64"]
)
@pytest.mark.parametrize("where", ["plain", "packed"])
def test_no_tensor_grows_with_the_plane(method, where):
    """Four times the tokens: no tensor of the forward or backward pass is more than four times as large."""
    scheme, found = build(method, Shape(2, 2, 8, 16, 256)), []
    for tokens in (600, 2400):
        line = Coordinates.plain(tokens) if where == "plain" else order(None, torch.arange(tokens)[None] // (tokens // 3))
        x = [torch.randn(1, 2, tokens, 8).requires_grad_() for _ in range(3)]
        with Largest() as largest:
            SDPA(short=0, rows=64, masks=1 << 13)(scheme.plan(*x, Layout(line, line))).sum().backward()
        found.append(largest.bytes)
    assert found[1] <= 4.1 * max(found[0], 1 << 17)
