"""The native kernel where kernels break: odd shapes, hostile norms, NaN behind the mask, threads, a missing compiler."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lengthen.backends import BACKENDS, attend, choose
from lengthen.backends.native import build as native_build
from lengthen.backends.native.build import kernel
from lengthen.backends.native.lower import lower
from lengthen.core import Causal, Coordinates, DistanceTerm, Layout, Refusal, Scheme, Shape, build, order
from lengthen.core.patterns import Beyond, Pattern
from lengthen.methods.alibi import ALiBi
from lengthen.methods.dilated import Dilated
from lengthen.methods.fire import FIRE
from lengthen.methods.sinks import Sinks
from lengthen.methods.window import Window

KERNEL = Path(native_build.__file__).parent
needs_kernel = pytest.mark.skipif(not kernel().built, reason=str(kernel().reason))


class Table(DistanceTerm):
    """A free score per distance and head."""

    def __init__(self, heads, length, dtype=torch.float32):
        super().__init__()
        self.scores = torch.nn.Parameter(torch.randn(heads, length, dtype=dtype))

    def at(self, distance):
        return self.scores.to(distance.dtype)[:, distance.long().clamp(0, self.scores.shape[1] - 1)]


def written_out(q, k, v, bias, seen):
    """softmax(q k^T / sqrt(D) + bias) v in float64; masked keys are left out, not multiplied by zero."""
    q, k, v = (t.double() for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = (q @ k.mT * q.shape[-1] ** -0.5 + bias).masked_fill(~seen, -torch.inf)
    weights = scores.softmax(-1).nan_to_num()
    return weights @ v.masked_fill(~v.isfinite(), 0.0)


def last_rows(queries, keys):
    return torch.arange(keys - queries, keys)[:, None], torch.arange(keys)[None]


def tensors(batch, heads, groups, queries, keys, size, dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed)
    shapes = (heads, queries), (groups, keys), (groups, keys)
    return [torch.randn(batch, h, n, size, dtype=dtype, generator=g).requires_grad_() for h, n in shapes]


def relative(a, b):
    return ((a.double() - b).abs().max() / b.abs().max().clamp_min(1e-30)).item()


SHAPES = [
    (1, 1, 1, 1, 1, 8),
    (2, 5, 5, 63, 63, 24),
    (1, 5, 1, 64, 64, 80),
    (2, 4, 2, 65, 65, 128),
    (1, 71, 71, 65, 65, 8),
    (1, 1, 1, 193, 193, 256),
    (1, 3, 1, 7, 389, 1),
    (1, 2, 2, 100, 577, 33),
    (1, 1, 1, 4097, 4097, 8),
]


@needs_kernel
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_hostile_shapes_forward_and_all_gradients(shape):
    """float32 within 1e-5 of float64, the gradient of the table included."""
    _, heads, _, queries, keys, _ = shape
    inputs, term = tensors(*shape), Table(heads, keys)
    i, j = last_rows(queries, keys)
    out = attend(Scheme(terms=[term]), *inputs, backend="native")
    exact = [t.detach().double().requires_grad_() for t in (*inputs, term.scores)]
    expected = written_out(*exact[:3], exact[3][:, (i - j).clamp_min(0)], j <= i)
    g = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert relative(out, expected) < 1e-5
    mine = torch.autograd.grad(out, [*inputs, term.scores], g.float())
    for name, a, b in zip("qkvt", mine, torch.autograd.grad(expected, exact, g), strict=True):
        # With one key, the true gradients of q, k and the table are zero.
        assert relative(a, b) < 1e-5 or (keys == 1 and a.abs().max() < 1e-5), name


def fire_written_out(term, i, j):
    """MLP(psi(i - j) / (psi(max(i, L)) + 1e-6)), psi(x) = ln(|c x| + 1): [H, Q, K] in float64 with gradients."""
    up, down, c = term.up, term.down, term.c.double()
    psi = lambda x: ((c * x).abs() + 1).log()
    x = psi((i - j).double()) / (psi(torch.maximum(i.double(), (term.multiplier.double() * term.threshold).abs())) + 1e-6)
    hidden = (x[..., None] * up.weight[:, 0].double() + up.bias.double()).relu()
    return (hidden @ down.weight.double().T + down.bias.double()).movedim(-1, -3)


@needs_kernel
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a table"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fire_and_the_gradients_of_all_it_learns(shape, beside):
    """float32 within 1e-5 of float64; the threshold lies inside, so that its multiplier learns too."""
    _, heads, _, queries, keys, _ = shape
    torch.manual_seed(1)
    inputs, term = tensors(*shape), FIRE(heads, threshold=keys - queries / 2)
    terms = [term, ALiBi(heads)] if beside else [term]
    i, j = last_rows(queries, keys)
    out = attend(Scheme(terms=terms), *inputs, backend="native")
    bias = fire_written_out(term, i, j) + (ALiBi(heads).at((i - j).double()) if beside else 0.0)
    expected = written_out(*inputs, bias, j <= i)
    assert relative(out, expected) < 1e-5
    # The last bias moves all scores of a row alike: its gradient is nothing but rounding.
    learned = [*inputs, *term.up.parameters(), term.down.weight, term.c, term.multiplier]
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(2))
    got = torch.autograd.grad(out, learned, grad)
    wanted = torch.autograd.grad(expected, learned, grad.double())
    for mine, true in zip(got, wanted, strict=True):
        assert (mine.double() - true).abs().max() <= 1e-5 * max(1.0, true.abs().max())


@needs_kernel
def test_fire_by_finite_differences():
    torch.manual_seed(3)
    inputs, term = tensors(2, 2, 1, 9, 14, 4, torch.float64), FIRE(2, threshold=8.0, hidden=6).double()
    names, values = zip(*term.named_parameters(), strict=True)

    def run(q, k, v, *learned):
        with torch.nn.utils.stateless._reparametrize_module(term, dict(zip(names, learned, strict=True))):
            return attend(Scheme(terms=[term]), q, k, v, backend="native")

    assert torch.autograd.gradcheck(run, (*inputs, *(p.detach().requires_grad_() for p in values)), atol=1e-6)


@needs_kernel
def test_fire_over_padded_rows_and_packed_documents():
    """Rows of a batch that begin at different places, and documents whose positions restart: as the dense backend, float64."""
    torch.manual_seed(4)
    q, k, v = tensors(2, 3, 3, 90, 90, 8, torch.float64)
    term = FIRE(3, threshold=20.0).double()
    column, start = torch.arange(90), torch.tensor([[0], [37]])
    valid = column >= start
    padded = torch.where(valid, column - start, -1)
    doc = (column[None] >= 40).long()
    packed = column[None] - 40 * doc
    for line in (Coordinates(padded, padded, valid=valid), Coordinates(packed, packed, doc=doc)):
        learned = [q, k, v, *term.up.parameters(), term.c]
        results = []
        for backend in ("native", "dense"):
            out = attend(Scheme(terms=[term]), q, k, v, Layout(line, line), backend=backend)
            results.append([out, *torch.autograd.grad(out.square().sum(), learned)])
        for mine, true in zip(*results, strict=True):
            torch.testing.assert_close(mine, true, rtol=1e-10, atol=1e-10)


@needs_kernel
def test_gradients_by_finite_differences():
    q, k, v = tensors(1, 2, 1, 9, 11, 5, torch.float64)
    term = Table(2, 11, torch.float64)
    scheme = Scheme(terms=[term])
    assert torch.autograd.gradcheck(lambda q, k, v, t: attend(scheme, q, k, v, backend="native"), (q, k, v, term.scores))


@needs_kernel
@pytest.mark.parametrize("loud", [1.0, 30.0, 1e3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_skipping_faint_tiles_changes_nothing(loud, dtype):
    """ALiBi over 3000 keys where a few far keys are long enough to outweigh the penalty: they must not be skipped."""
    q, k, v = (t.detach() for t in tensors(1, 4, 4, 3000, 3000, 16, dtype))
    k[:, :, [3, 700, 701]] *= loud
    q[:, :, 1500::97] *= loud
    term, (i, j) = ALiBi(4), last_rows(3000, 3000)
    with torch.no_grad():
        out = attend(Scheme(terms=[term]), q, k, v, backend="native")
        bias = -torch.tensor(term.slopes, dtype=torch.float64)[:, None, None] * (i - j)
        expected = written_out(q, k, v, bias, j <= i)
    # The scores themselves are as large as loud^2 and rounded in the type of the queries.
    rounding = torch.finfo(dtype).eps * loud**2 * 40
    assert relative(out, expected) < max(rounding, 2e-6 if dtype == torch.float32 else 1e-13)


@needs_kernel
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_what_is_masked_does_not_leak(poison):
    """The last keys are not finite and no query sees them: neither outputs nor gradients may notice."""
    inputs = tensors(1, 2, 1, 300, 300, 8)
    line = Coordinates.plain(300)
    layout = Layout(line.take(slice(0, 250)), line)
    q, k, v = (t.detach().clone() for t in inputs)
    k[:, :, 250:], v[:, :, 250:] = poison, poison
    q, k, v = (t.requires_grad_() for t in (q[:, :, :250].clone(), k, v))
    scheme, (i, j) = Scheme(terms=[ALiBi(2)]), last_rows(250, 250)
    out = attend(scheme, q, k, v, layout, backend="native")
    bias = -torch.tensor(scheme.terms[0].slopes, dtype=torch.float64)[:, None, None] * (i - j)
    exact = [t.detach()[:, :, :250].double().requires_grad_() for t in inputs]
    expected = written_out(*exact, bias, j <= i)
    assert relative(out, expected) < 1e-5
    grads = torch.autograd.grad(out.sin().sum(), (q, k, v))
    for a, b in zip(grads, torch.autograd.grad(expected.sin().sum(), exact), strict=True):
        assert a.isfinite().all() and a[:, :, 250:].abs().sum() == 0
        assert relative(a[:, :, :250], b) < 1e-5


@needs_kernel
def test_a_future_key_that_is_not_finite_leaves_earlier_rows_alone():
    q, k, v = (t.detach() for t in tensors(1, 2, 2, 300, 300, 8))
    clean = attend(Scheme(), q, k, v, backend="native")
    k[:, :, 130], v[:, :, 131] = float("nan"), float("inf")
    out = attend(Scheme(), q, k, v, backend="native")
    # Flagged tiles are summed in another order.
    assert (out[:, :, :130] - clean[:, :, :130]).abs().max() < 1e-5
    assert out[:, :, 130:].isnan().any(-1).all()


@needs_kernel
@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FC00001, 0x7FC001FF])
def test_a_visible_nan_stays_one_whatever_its_payload(bits):
    q, k, v = (t.detach() for t in tensors(1, 1, 1, 64, 64, 8))
    k[:, :, 5] = torch.tensor(bits, dtype=torch.int32).view(torch.float32)
    out = attend(Scheme(), q, k, v, backend="native")
    assert out[:, :, 5:].isnan().all() and out[:, :, :5].isfinite().all()


@needs_kernel
def test_shapes_can_be_traced_without_data():
    q, k = torch.empty(2, 4, 7, 8, device="meta"), torch.empty(2, 2, 9, 8, device="meta")
    table, seen = torch.empty(4, 15, device="meta"), torch.empty(1, 7, 1, 2, dtype=torch.int32, device="meta")
    shapes = (31,), (1, 7), (4, 3), (4, 3), (4,)
    warp = [*(torch.empty(s, device="meta") for s in shapes), torch.empty(1, 7, 2, dtype=torch.int32, device="meta")]
    out, lse = torch.ops.lengthen.attention(q, k, k, table, warp, seen, 1.0)
    *grads, of_warp = torch.ops.lengthen.attention_backward(out, q, k, k, out, lse, table, warp, seen, 1.0, True, True)
    assert (out.shape, lse.shape) == (q.shape, q.shape[:3])
    assert [g.shape for g in grads] == [q.shape, k.shape, k.shape, table.shape]
    assert [tuple(g.shape) for g in of_warp] == list(shapes[:4])


@needs_kernel
def test_padding_that_is_not_finite_does_not_leak():
    valid = torch.ones(2, 120, dtype=torch.bool)
    valid[0, :50] = valid[1, 100:] = False
    inputs = [t.detach() for t in tensors(2, 2, 2, 120, 120, 8)]
    line = order(valid, None)
    clean = attend(Scheme(terms=[ALiBi(2)]), *inputs, Layout(line, line), backend="native")
    poisoned = [torch.where(valid[:, None, :, None], t, torch.nan).requires_grad_() for t in inputs]
    out = attend(Scheme(terms=[ALiBi(2)]), *poisoned, Layout(line, line), backend="native")
    assert torch.equal(torch.where(valid[:, None, :, None], out, 0.0), torch.where(valid[:, None, :, None], clean, 0.0))
    for g in torch.autograd.grad(out, poisoned, valid[:, None, :, None].expand_as(out).float()):
        assert g.isfinite().all()


@needs_kernel
def test_strides_of_any_kind():
    """Heads taken from the middle of one projection, channels reversed in memory, keys shared by an expanded batch."""
    g = torch.Generator().manual_seed(0)
    packed = torch.randn(2, 70, 9, 12, generator=g).transpose(1, 2)
    q, k, v = packed[:, 1:4], packed[:1, 4:7].expand(2, -1, -1, -1), packed.flip(-1)[:, 6:9]
    i, j = last_rows(70, 70)
    out = attend(Scheme(), q, k, v.transpose(2, 3).contiguous().transpose(2, 3), backend="native")
    assert relative(out, written_out(q, k, v, 0.0, j <= i)) < 1e-5


@needs_kernel
def test_one_query_over_a_million_keys():
    q, k, v = (t.detach() for t in tensors(1, 2, 1, 1, 1 << 20, 4))
    k[:, :, 5] *= 30
    out = attend(Scheme(), q, k, v, backend="native")
    assert relative(out, written_out(q, k, v, 0.0, torch.ones(1, 1, dtype=torch.bool))) < 1e-5


@needs_kernel
@pytest.mark.parametrize("queries", [1, 6, 7])
def test_few_queries_see_windows_sinks_and_documents(queries):
    doc = torch.tensor([[0] * 300 + [1] * 800, [0] * 1100])
    every = order(None, doc)
    new = every.take(slice(1100 - queries, None))
    q, k, v = (t.detach() for t in tensors(2, 4, 2, queries, 1100, 16))
    scheme = Scheme(terms=[ALiBi(4)], pattern=Causal() & (Window(40) | Sinks(3)))
    out = attend(scheme, q, k, v, Layout(new, every), backend="native")
    i, j = new.idx[:, :, None], every.idx[:, None]
    seen = (j <= i) & ((i - j < 40) | (j < 3)) & (doc[:, 1100 - queries :, None] == doc[:, None])
    bias = -torch.tensor(scheme.terms[0].slopes, dtype=torch.float64)[:, None, None] * (i - j)[:, None]
    assert relative(out, written_out(q, k, v, bias, seen[:, None])) < 1e-5


@needs_kernel
@pytest.mark.parametrize("heads", [1, 5])
def test_equal_numbers_twice_and_close_on_other_thread_counts(heads):
    inputs, term, threads = tensors(1, heads, 1, 700, 700, 16), Table(heads, 700), torch.get_num_threads()

    def run():
        out = attend(Scheme(terms=[term]), *inputs, backend="native")
        return [out, *torch.autograd.grad(out.sin().sum(), [*inputs, term.scores])]

    try:
        torch.set_num_threads(2)
        first, again = run(), run()
        torch.set_num_threads(1)
        alone = run()
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert all(relative(a, b.double()) < 1e-5 for a, b in zip(first, alone, strict=True))


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precisions_are_computed_in_float32(dtype):
    """Only the output is rounded: half a unit in the last place of the exact result on the same inputs."""
    q, k, v = (t.detach().to(dtype) for t in tensors(1, 2, 2, 300, 300, 16))
    i, j = last_rows(300, 300)
    out = attend(Scheme(), q, k, v, backend="native")
    expected = written_out(q, k, v, 0.0, j <= i)
    assert out.dtype == dtype
    assert ((out.double() - expected).abs() <= torch.finfo(dtype).eps * expected.abs() * 0.51 + 1e-5).all()


@needs_kernel
@pytest.mark.parametrize("name", ["nope", "alibi", "kerple", "sandwich", "t5"])
def test_at_most_twice_the_error_of_pytorchs_own_kernel(name):
    """Against plain causal attention there. Sums that start at what was gathered before would be eight times worse."""
    q, k, v = (t.detach() for t in tensors(1, 8, 8, 2048, 2048, 64))
    i, j = last_rows(2048, 2048)
    torch.manual_seed(0)
    scheme = build(name, Shape(heads=8, groups=8, head_size=64, width=512))
    with torch.no_grad():
        bias = sum((t.at((i - j).double()) for t in scheme.terms), torch.zeros(()))
        mine = (attend(scheme, q, k, v, backend="native") - written_out(q, k, v, bias, j <= i)).abs().max()
        theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        assert mine <= 2 * (theirs - written_out(q, k, v, 0.0, j <= i)).abs().max()


@needs_kernel
def test_denormals_are_flushed_inside_the_kernel_only():
    q, k, v = (t.detach() for t in tensors(1, 1, 1, 64, 64, 8))
    attend(Scheme(), q, k, v, backend="native")
    tiny = torch.full((1000,), 1e-39)
    assert (tiny * 0.5).min() > 0


class Odd(Pattern):
    """Every second key: not a few intervals."""

    def __call__(self, i, j):
        return (j <= i) & ((i - j) % 2 == 0)


def test_refusals_are_sentences():
    q, k, v = tensors(1, 2, 2, 8, 8, 4)
    plan = lambda scheme, layout=None: scheme.plan(q, k, v, layout if layout is not None else Layout.plain(8))
    idx = torch.arange(8)[None]
    skipped = Coordinates(idx, idx + 5 * (idx > 3))
    whole = lower(plan(Scheme(terms=[ALiBi(2)]), Layout(skipped, skipped)))
    real = lower(plan(Scheme(terms=[ALiBi(2)]), Layout(*[Coordinates(idx, idx.double().sqrt())] * 2)))
    assert "these skip" in whole and "evenly spaced" in real
    assert "few intervals" in lower(plan(Scheme(pattern=Odd())))
    holes = torch.tensor([[1, 1, 0, 1, 1, 1, 1, 1]]).bool()
    assert "padding splits one" in lower(plan(Scheme(), Layout(*[order(holes, None)] * 2)))
    # Without terms, positions have done their work in the rotation.
    assert not isinstance(lower(plan(Scheme(), Layout(skipped, skipped))), str)


@needs_kernel
@pytest.mark.parametrize("step", [3, 0.25])
def test_positions_that_step_evenly(step):
    """Rescaled and strided positions: a score per distance, whole or not."""
    inputs, term = tensors(2, 4, 2, 30, 80, 8), ALiBi(4)
    line = Coordinates(torch.arange(80)[None], torch.arange(80)[None] * step)
    layout = Layout(line.take(slice(50, 80)), line)
    out = attend(Scheme(terms=[term]), *inputs, layout, backend="native")
    i, j = last_rows(30, 80)
    assert relative(out, written_out(*inputs, term.at((i - j).double() * step), j <= i)) < 1e-5


@pytest.mark.parametrize("backend", ["native", "sdpa", "blocked"])
@pytest.mark.parametrize(("tokens", "step"), [(4, 3), (1, 2), (50, 7)])
def test_dilated_windows_are_windows_among_every_nth_token(tokens, step, backend):
    if backend == "native" and not kernel().built:
        pytest.skip(str(kernel().reason))
    for queries, keys in ((83, 83), (5, 83), (1, 83), (64, 65)):
        inputs, terms = tensors(2, 4, 2, queries, keys, 8), [ALiBi(4)]
        out = attend(Scheme(terms=terms, pattern=Dilated(tokens, step)), *inputs, backend=backend)
        i, j = last_rows(queries, keys)
        seen = (j <= i) & (i - j <= (tokens - 1) * step) & ((i - j) % step == 0)
        expected = written_out(*inputs, terms[0].at((i - j).double()), seen)
        assert relative(out, expected) < 1e-5
        for mine, true in zip(*(torch.autograd.grad(x.square().sum(), inputs) for x in (out, expected)), strict=True):
            assert (mine - true).abs().max() < 1e-5 * true.abs().max().clamp_min(1.0)


@needs_kernel
def test_branches_merge_exactly():
    """Window and beyond, two branches at the same positions, are plain causal attention: against float64."""
    from lengthen.core import Branch

    q, k, v = tensors(1, 4, 2, 150, 150, 8)
    scheme = Scheme(terms=[ALiBi(4)], branches=(Branch(Window(20)), Branch(Beyond(20))))
    i, j = last_rows(150, 150)
    bias = -torch.tensor(scheme.terms[0].slopes, dtype=torch.float64)[:, None, None] * (i - j)
    out = attend(scheme, q, k, v, backend="native")
    exact = [t.detach().double().requires_grad_() for t in (q, k, v)]
    expected = written_out(*exact, bias, j <= i)
    assert relative(out, expected) < 1e-5
    grads = torch.autograd.grad(out.sin().sum(), (q, k, v))
    for a, b in zip(grads, torch.autograd.grad(expected.sin().sum(), exact), strict=True):
        assert relative(a, b) < 1e-5


SCRIPT = """
import torch, warnings
from lengthen.backends import BACKENDS, attend, choose
from lengthen.core import Layout, Scheme
from lengthen.methods.alibi import ALiBi
from lengthen.methods.dilated import Dilated
from lengthen.methods.fire import FIRE
torch.manual_seed(0)
q, k, v = torch.randn(3, 1, 2, 40, 8)
scheme = Scheme(terms=[ALiBi(2)])
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    out = attend(scheme, q, k, v)
    out = attend(scheme, q, k, v)
print(choose(scheme.plan(q, k, v, Layout.plain(40))).name, len([w for w in said if "native" in str(w.message)]), out.double().sum().item())
"""


@pytest.mark.parametrize(
    ("environment", "warned"), [({"LENGTHEN_NATIVE": "0"}, 0), ({"CXX": "no-such-compiler"}, 1), ({"CXX": "false"}, 1)]
)
def test_without_a_compiler_the_same_numbers_and_one_warning(environment, warned, tmp_path):
    run = lambda extra: subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**os.environ, **extra}, capture_output=True, text=True, check=True
    ).stdout.split()
    name, said, total = run({**environment, "LENGTHEN_CACHE": str(tmp_path)})
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 40, 8)
    i, j = last_rows(40, 40)
    bias = -torch.tensor(ALiBi(2).slopes, dtype=torch.float64)[:, None, None] * (i - j)
    expected = written_out(q, k, v, bias, j <= i).sum().item()
    assert (name, int(said)) == ("sdpa", warned)
    assert float(total) == pytest.approx(expected, abs=1e-4)


def test_a_named_backend_that_is_off_says_why(monkeypatch):
    monkeypatch.setenv("LENGTHEN_NATIVE", "0")
    q, k, v = tensors(1, 2, 2, 8, 8, 4)
    with pytest.raises(Refusal, match="turned off"):
        choose(Scheme().plan(q, k, v, Layout.plain(8)), "native")
    assert BACKENDS["native"].refusal(Scheme().plan(q, k, v, Layout.plain(8)))


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_clean_under_sanitizers(sanitizer, tmp_path):
    """The kernel alone, with threads of the standard library: OpenMP's runtime is not instrumented."""
    compiler, source = shutil.which(os.environ.get("CXX", "c++")), Path(__file__).with_name("sanitize.cpp")
    if compiler is None:
        pytest.skip("No C++ compiler.")
    options = ["-std=c++20", "-O1", "-g", "-march=native", "-Wno-psabi", "-pthread", f"-fsanitize={sanitizer}"]
    program = tmp_path / "sanitize"
    command = [compiler, *options, "-fno-sanitize-recover=all", "-I", str(KERNEL), str(source), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True)
    if "cannot find" in built.stderr:
        pytest.skip(f"This compiler has no library for -fsanitize={sanitizer}.")
    assert not built.returncode, built.stderr[-2000:]
    ran = subprocess.run([str(program)], capture_output=True, text=True)
    assert ran.stdout == "clean\n", ran.stderr[-3000:]
