"""Transformer-XL: the four-term score written out pair by pair (arXiv:1901.02860, section 3.3)."""

import numpy as np
import pytest
import torch

from lengthen.core import Everywhere, Shape, Tile, UsageError, build
from lengthen.methods.transformer_xl import TransformerXL


def written_out(term: TransformerXL, q, k, q_pos, k_pos, scale) -> np.ndarray:
    """scale * (q.WR + u.k + v.WR), [H, Q, K], one pair at a time."""
    w, u, v = (x.detach().numpy() for x in (term.w, term.u, term.v))
    width, out = w.shape[2], np.zeros((len(u), len(q_pos), len(k_pos)))
    for i, at in enumerate(q_pos):
        for j, to in enumerate(k_pos):
            d = at - to if term.clamp_length is None else np.clip(at - to, -term.clamp_length, term.clamp_length)
            angle = d * 10_000.0 ** (-np.arange(0, width, 2) / width)
            r = np.concatenate((np.sin(angle), np.cos(angle)))
            for h in range(len(u)):
                out[h, i, j] = scale * (q[h, i] @ (w[h] @ r) + u[h] @ k[h, j] + v[h] @ (w[h] @ r))
    return out


POSITIONS = {
    "run": (torch.arange(4, 7), torch.arange(7)),
    "future": (torch.arange(3), torch.arange(9)),
    "one": (torch.tensor([10**6]), torch.tensor([10**6])),
    "gaps": (torch.tensor([0, 10**6]), torch.tensor([0, 3, 999_000])),
    "real": (torch.tensor([0.5, 7.25], dtype=torch.float64), torch.tensor([0.0, 1.75, 30.5], dtype=torch.float64)),
    "unsorted": (torch.tensor([5, 2]), torch.tensor([3, 0, 4])),
}


@pytest.mark.parametrize("clamp_length", [None, 3])
@pytest.mark.parametrize("name", POSITIONS)
def test_score_is_the_papers_at_any_positions(name, clamp_length):
    torch.manual_seed(0)
    term = TransformerXL(3, 4, 10, clamp_length).double()
    q_pos, k_pos = POSITIONS[name]
    q, k = (torch.randn(1, 3, len(p), 4, dtype=torch.float64) for p in (q_pos, k_pos))
    got = term(Tile(q_pos[None], k_pos[None], torch.float64, scale=0.3, q=q, k=k))
    expected = written_out(term, q[0].numpy(), k[0].numpy(), q_pos.double().numpy(), k_pos.double().numpy(), 0.3)
    np.testing.assert_allclose(got[0].detach(), expected, rtol=1e-9, atol=1e-9)


def test_rows_of_a_batch_may_stand_at_different_positions():
    torch.manual_seed(0)
    term = TransformerXL(2, 4, 6).double()
    q_pos, k_pos = torch.tensor([[4, 5], [1, 2]]), torch.tensor([[3, 4, 5], [0, 1, 2]])
    q, k = torch.randn(2, 2, 2, 4, dtype=torch.float64), torch.randn(2, 2, 3, 4, dtype=torch.float64)
    got = term(Tile(q_pos, k_pos, torch.float64, q=q, k=k))
    for b in range(2):
        expected = written_out(term, q[b].numpy(), k[b].numpy(), q_pos[b].numpy(), k_pos[b].numpy(), 1.0)
        np.testing.assert_allclose(got[b].detach(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", [torch.int64, torch.float64])
def test_every_parameter_learns_the_same_by_either_route(kind):
    torch.manual_seed(0)
    term = TransformerXL(2, 4, 6).double()
    q, k = (torch.randn(1, 2, n, 4, dtype=torch.float64) for n in (3, 5))
    q_pos, k_pos, weight = torch.arange(2, 5)[None], torch.arange(5)[None], torch.randn(2, 3, 5, dtype=torch.float64)
    (term(Tile(q_pos.to(kind), k_pos.to(kind), torch.float64, q=q, k=k))[0] * weight).sum().backward()
    g = weight.numpy()
    np.testing.assert_allclose(term.u.grad, np.einsum("hij,hjd->hd", g, k[0].numpy()), rtol=1e-10)
    angle = (np.arange(2, 5)[:, None] - np.arange(5))[..., None] * 10_000.0 ** (-np.arange(0, 6, 2) / 6)
    r = np.concatenate((np.sin(angle), np.cos(angle)), axis=-1)
    asking = q[0].numpy() + term.v.detach().numpy()[:, None]
    np.testing.assert_allclose(term.w.grad, np.einsum("hij,hid,ijc->hdc", g, asking, r), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(term.v.grad, np.einsum("hij,hdc,ijc->hd", g, term.w.detach().numpy(), r), rtol=1e-9)


def test_float32_angles_are_exact_at_a_million_tokens():
    torch.manual_seed(0)
    term = TransformerXL(2, 4, 8).bfloat16()
    q, k = torch.randn(1, 2, 1, 4), torch.randn(1, 2, 2, 4)
    q_pos, k_pos = torch.tensor([[10**6]]), torch.tensor([[0, 999_743]])
    got = term(Tile(q_pos, k_pos, torch.float32, q=q, k=k))[0]
    expected = written_out(term.double(), q[0].double().numpy(), k[0].double().numpy(), [10**6], [0, 999_743], 1.0)
    assert got.dtype == torch.float32
    np.testing.assert_allclose(got.detach(), expected, atol=2e-6)


def test_settings():
    assert build("transformer_xl:bidirectional=True", Shape()).pattern == Everywhere()
    with pytest.raises(UsageError, match="must be even, got 7"):
        build("transformer_xl", Shape(width=7))
    with pytest.raises(UsageError, match=r"'clamp_length' of TransformerXL must be .*got 0"):
        build("transformer_xl:clamp_length=0", Shape())
