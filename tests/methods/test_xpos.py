"""xPos against its formula on distances, in float64, up to a million tokens out."""

import numpy as np
import pytest
import torch
from torch import Tensor

from lengthen.backends import attend
from lengthen.core import Coordinates, Everywhere, Layout, PositionMap, Scheme, Shape, UsageError, build, order
from lengthen.models import Decoder, make_decoder, preset

MILLION = 1_000_000
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.float16: 6e-3, torch.bfloat16: 5e-2}
"""On outputs of size 1: a few roundings of turned queries and keys, never of a position."""


def shape(head_size: int) -> Shape:
    return Shape(heads=2, groups=1, head_size=head_size, width=2 * head_size, train_length=16)


def xpos(head_size: int = 16, **options) -> Scheme:
    spec = "xpos:" + ",".join(f"{k}={v}" for k, v in options.items())
    return build(spec, shape(head_size))


def contents(queries: int, keys: int, size: int, batch: int = 1, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    make = lambda heads, tokens: torch.randn(batch, heads, tokens, size, dtype=torch.float64, generator=generator)
    return make(2, queries), make(1, keys), make(1, keys)


def reference(q: Tensor, k: Tensor, v: Tensor, q_pos: Tensor, k_pos: Tensor, base_tokens: float = 512.0) -> Tensor:
    """softmax over n <= m of D^-1/2 sum_i zeta_i^((m-n)/B) Re(q_i conj(k_i) e^(1j (m-n) theta_i)), pairs (2i, 2i+1).

    [H, Q, D], [1, K, D], [1, K, D], [Q], [K] -> [H, Q, D], float64, from distances alone.
    """
    q, k, v = q.double(), k.double(), v.double()
    pairs = q.shape[-1] // 2
    i = torch.arange(pairs, dtype=torch.float64)
    zeta, theta = (i / pairs + 0.4) / 1.4, 10_000.0 ** (-i / pairs)
    distance = (q_pos[:, None] - k_pos[None, :]).double()
    scores = torch.zeros(q.shape[0], len(q_pos), len(k_pos), dtype=torch.float64)
    for p in range(pairs):
        a, b, c, d = (t[..., n] for t in (q, k) for n in (2 * p, 2 * p + 1))
        along = a[:, :, None] * c[:, None, :] + b[:, :, None] * d[:, None, :]
        across = b[:, :, None] * c[:, None, :] - a[:, :, None] * d[:, None, :]
        angle = distance * theta[p]
        decay = zeta[p] ** (distance.clamp_min(0) / base_tokens)
        scores = scores + decay * (along * angle.cos() - across * angle.sin())
    scores = (scores / q.shape[-1] ** 0.5).masked_fill(distance < 0, float("-inf"))
    return scores.softmax(-1) @ v


def line(pos: Tensor) -> Coordinates:
    """Tokens in order at the positions [T] or [B, T]."""
    pos = pos[None] if pos.dim() == 1 else pos
    return Coordinates(torch.arange(pos.shape[1])[None].expand_as(pos), pos)


def clusters() -> Tensor:
    """48 positions from 0 to a million: runs, gaps below the reach, across it, and far beyond."""
    gaps = torch.tensor(
        [1, 1, 1, 30, 500, 900, 1400, 1, 2000, 2047, 2049, 1, 1, 1, 5000, 1, 60_000, 2, 3, 1500, 700, 1, 300_000, 1]
    )
    first = torch.cat((torch.zeros(1, dtype=torch.long), gaps.cumsum(0)))
    rest = MILLION - torch.cat((torch.zeros(1, dtype=torch.long), gaps[:22].cumsum(0))).flip(0)
    return torch.cat((first, rest))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "positions",
    [
        clusters(),
        torch.arange(MILLION - 63, MILLION + 1),
        torch.arange(131_072 - 40, 131_072),
        torch.tensor([MILLION]),
        torch.arange(2),
    ],
    ids=["a million apart", "at a million", "at 131072", "one token", "two tokens"],
)
def test_far_out_it_is_finite_and_right_in_every_type(dtype, positions):
    assert positions.max() <= MILLION and bool((positions.diff() > 0).all())
    q, k, v = (t.to(dtype) for t in contents(len(positions), len(positions), 16))
    at = line(positions)
    y = attend(xpos(), q, k, v, Layout(at, at))
    assert y.dtype == dtype and bool(y.isfinite().all())
    expected = reference(q[0], k[0], v[0], positions, positions)
    torch.testing.assert_close(y[0].double(), expected, rtol=0, atol=TOLERANCE[dtype])


def test_a_million_keys_in_a_row():
    q, k, v = (t.half() for t in contents(3, MILLION, 2))
    y = attend(xpos(2), q, k, v, Layout.plain(3, MILLION))
    at = torch.arange(MILLION)
    torch.testing.assert_close(y[0].double(), reference(q[0], k[0], v[0], at[-3:], at), rtol=0, atol=TOLERANCE[torch.float16])


def test_decay_bases_and_decays_have_their_published_values():
    zeta = xpos(64).rotation.zeta
    expected = [0.2857142857142857, 0.3080357142857143, 0.4642857142857143, 0.6428571428571429, 0.9776785714285714]
    np.testing.assert_allclose(zeta[[0, 1, 8, 16, 31]], expected, rtol=1e-14)
    published = {
        64: [0.8550499667908448, 0.9085486033760717, 0.9462683386877883, 0.997182187253193],
        512: [0.28571428571428575, 0.46428571428571436, 0.6428571428571429, 0.9776785714285714],
        4096: [4.4407430542702215e-05, 0.0021591487726185265, 0.02916861378324249, 0.8347737271460449],
    }
    for distance, decays in published.items():
        for pair, decay in zip((0, 8, 16, 31), decays, strict=True):
            real, imaginary = torch.zeros(2, 1, 1, 2, 64, dtype=torch.float64)
            real[..., 2 * pair], imaginary[..., 2 * pair + 1] = 1, 1
            at = line(torch.tensor([MILLION - distance, MILLION]))
            parts = [xpos(64).plan(q, real, real, Layout(at, at)).logits()[0, 0, 1, 0] for q in (real, imaginary)]
            assert 8 * float(torch.stack(parts).norm()) == pytest.approx(decay, rel=1e-9)


@pytest.mark.parametrize("size", [2, 6, 64])
@pytest.mark.parametrize("scale_base", [1.0, 2.5, 16.0])
def test_long_runs_are_cut_and_agree(size, scale_base):
    q, k, v = contents(150, 150, size)
    at = torch.arange(150)
    y = attend(xpos(size, scale_base=scale_base), q, k, v)
    torch.testing.assert_close(y[0], reference(q[0], k[0], v[0], at, at, scale_base), rtol=0, atol=1e-10)
    y = attend(xpos(size, scale_base=scale_base), q[:, :, -77:], k, v)
    torch.testing.assert_close(y[0], reference(q[0, :, -77:], k[0], v[0], at[-77:], at, scale_base), rtol=0, atol=1e-10)


def test_rows_of_a_batch_do_not_share_a_centre():
    generator = torch.Generator().manual_seed(3)
    positions = torch.stack([torch.randint(0, most, (40,), generator=generator).sort().values for most in (100, 9000, MILLION)])
    positions[0] += 700_000
    q, k, v = (t.float() for t in contents(40, 40, 16, batch=3))
    at = line(positions)
    y = attend(xpos(), q, k, v, Layout(at, at))
    for row in range(3):
        # Equal positions: order decides what is visible, so the reference gets positions that differ.
        assert bool((positions[row].diff() >= 0).all())
        mask = torch.ones(40, 40, dtype=torch.bool).tril()
        expected = masked_reference(q[row], k[row], v[row], positions[row], mask)
        torch.testing.assert_close(y[row].double(), expected, rtol=0, atol=2e-5)


def masked_reference(q: Tensor, k: Tensor, v: Tensor, pos: Tensor, mask: Tensor) -> Tensor:
    """As `reference`, row by row of a mask [T, T] of keys at or before the query."""
    rows = [reference(q[:, [m]], k[:, mask[m]], v[:, mask[m]], pos[[m]], pos[mask[m]]) for m in range(len(pos))]
    return torch.cat(rows, dim=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_padded_and_packed_rows_far_out(dtype):
    valid = torch.ones(2, 24, dtype=torch.bool)
    valid[0, :7], valid[1, 20:] = False, False
    doc = torch.tensor([[0] * 24, [0] * 9 + [1] * 15])
    count = order(valid, doc)
    positions = torch.where(valid, count.pos * 997 + torch.tensor([[MILLION - 17_000], [3]]), -1)
    at = count.at(positions)
    q, k, v = (t.to(dtype) for t in contents(24, 24, 16, batch=2))
    y = attend(xpos(), q, k, v, Layout(at, at))
    assert bool(y.isfinite().all())
    for row, tokens in ((0, slice(7, 24)), (1, slice(0, 9)), (1, slice(9, 20))):
        own = positions[row, tokens]
        expected = reference(q[row, :, tokens], k[row, :, tokens], v[row, :, tokens], own, own)
        torch.testing.assert_close(y[row, :, tokens].double(), expected, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_gradients_are_finite_and_right_a_million_apart(dtype):
    positions = clusters()
    ours = [t.to(dtype).requires_grad_() for t in contents(48, 48, 16)]
    theirs = [t.detach().double()[0].requires_grad_() for t in ours]
    weight = torch.randn(2, 48, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    at = line(positions)
    (attend(xpos(), *ours, Layout(at, at))[0].double() * weight).sum().backward()
    (reference(*theirs, positions, positions) * weight).sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        assert bool(a.grad.isfinite().all())
        largest = float(b.grad.abs().max())
        torch.testing.assert_close(a.grad[0].double(), b.grad, rtol=0, atol=4 * TOLERANCE[dtype] * largest)


def test_padding_far_behind_leaves_gradients_finite():
    valid = torch.arange(12)[None] >= 5
    count = order(valid, None)
    at = count.at(torch.where(valid, count.pos + MILLION, -1))
    q, k, v = (t.float().requires_grad_() for t in contents(12, 12, 16))
    attend(xpos(), q, k, v, Layout(at, at)).square().sum().backward()
    assert all(bool(t.grad.isfinite().all()) for t in (q, k, v))


def test_scores_depend_on_the_distance_alone():
    q, k, v = contents(30, 30, 16)
    at = torch.arange(30)
    expected = reference(q[0], k[0], v[0], at, at)
    for shift in (1, 2048, 100_000, MILLION):
        moved = line(at + shift)
        y = attend(xpos(), q.float(), k.float(), v.float(), Layout(moved, moved))
        torch.testing.assert_close(y[0].double(), expected, rtol=0, atol=2e-5)


class Stretched(PositionMap):
    """Every token 25,000 positions after the one before: 40 of them span a million."""

    def forward(self, idx, tokens=None):
        return idx * 25_000 + 7


def test_a_position_map_may_spread_a_model_over_a_million():
    model = Decoder(preset("tiny", groups=2), Scheme(positions=Stretched(), rotation=xpos().rotation))
    ids = torch.randint(0, 256, (2, 41), generator=torch.Generator().manual_seed(0))
    full, cache = model(ids), model.new_cache()
    assert bool(full.isfinite().all())
    chunks = torch.cat([model(part, cache=cache) for part in ids.split([1, 5, 30, 5], dim=1)], dim=1)
    torch.testing.assert_close(chunks, full, rtol=0, atol=2e-5)


@pytest.mark.parametrize("chunks", [[1] * 100, [60, 40], [7] * 14 + [2], [99, 1], [3, 33, 64]])
def test_decoding_in_chunks_is_the_full_forward(chunks):
    """Reach 32, so chunks and cuts fall differently; keys cached at 60 tokens are read at 100."""
    model = make_decoder(preset("tiny", groups=2), "xpos:scale_base=8", train_length=32).double()
    ids = torch.randint(0, 256, (2, 100), generator=torch.Generator().manual_seed(0))
    cache = model.new_cache()
    with torch.no_grad():
        parts = torch.cat([model(part, cache=cache) for part in ids.split(chunks, dim=1)], dim=1)
        torch.testing.assert_close(parts, model(ids), rtol=0, atol=1e-10)


def test_it_composes_with_causal_patterns_and_refuses_to_look_ahead():
    assert build("xpos+bca").pattern.causal
    with pytest.raises(UsageError, match="must be causal"):
        xpos().with_pattern(Everywhere())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale_base": 0.5}, "at least 1 position, got 0.5"),
        ({"scale_base": -512}, "positive, finite number of positions, got -512"),
        ({"gamma": 0}, "'gamma' .*got 0"),
        ({"base": -1}, "got -1"),
    ],
)
def test_bad_options_are_refused_with_their_numbers(options, message):
    with pytest.raises(UsageError, match=message):
        xpos(**options)


def test_an_odd_head_is_refused():
    with pytest.raises(UsageError, match=r"even, got 15. Use 14 or 16"):
        xpos(15)
