"""FoX: published biases, cached streams, and sums that stay exact over a million tokens (arXiv:2503.02130)."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from lengthen.core import Layout, Shape, Tile, UsageError, build
from lengthen.methods.fox import ForgetGate

GATES = [0.9, 0.8, 0.5, 1.0, 0.7]
BIAS = [
    [0.0],
    [-0.2231435513142097, 0.0],
    [-0.9162907318741549, -0.6931471805599452, 0.0],
    [-0.9162907318741549, -0.6931471805599452, 0.0, 0.0],
    [-1.2729656758128873, -1.0498221244986776, -0.35667494393873245, -0.35667494393873245, 0.0],
]


def bias(q_stream, k_stream, dtype=torch.float64):
    layout = Layout.plain(q_stream.shape[1], k_stream.shape[1])
    return ForgetGate(1, 4)(Tile(layout.q.pos, layout.k.pos, dtype, q_stream=q_stream, k_stream=k_stream))


def test_bias_is_the_sum_of_the_logarithms_of_the_gates_between():
    stream = torch.tensor(GATES, dtype=torch.float64).log().cumsum(0)[None, :, None]
    got = bias(stream, stream)[0, 0]
    for i, row in enumerate(BIAS):
        np.testing.assert_allclose(got[i, : i + 1], row, atol=1e-15)


@pytest.mark.parametrize("cuts", [(0, 7), (0, 1, 2, 7), (0, 4, 7)])
def test_stream_is_the_cumulative_log_gate_however_it_is_cut(cuts):
    torch.manual_seed(0)
    term = ForgetGate(3, 8, bias=0.5).double()
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    w, b = term.gate.weight.detach().numpy(), term.gate.bias.detach().numpy()
    expected = np.cumsum(-np.log1p(np.exp(-(x.numpy() @ w.T + b))), axis=1)
    parts, carry = [], None
    for a, z in pairwise(cuts):
        parts.append(term.stream(x[:, a:z], carry))
        carry = parts[-1][:, -1:]
    np.testing.assert_allclose(torch.cat(parts, 1).detach(), expected, rtol=1e-13)


def test_sums_stay_exact_for_bfloat16_models_under_autocast_at_a_million_tokens():
    term = ForgetGate(1, 2).bfloat16()
    torch.nn.init.zeros_(term.gate.weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        stream = term.stream(torch.ones(1, 10**6, 2, dtype=torch.bfloat16), None)[:, -4:]
    got = bias(stream, stream, torch.float32)[0, 0]
    assert got.dtype == torch.float32
    expected = -np.log(2) * (np.arange(4)[:, None] - np.arange(4))
    np.testing.assert_allclose(got.detach(), expected, atol=1e-6)


def test_gates_start_where_the_bias_says_and_learn():
    term = build("fox:bias=4.0", Shape(heads=3, groups=3, width=8)).terms[0]
    stream = term.stream(torch.zeros(1, 1, 8), None)
    np.testing.assert_allclose(stream.detach(), np.full((1, 1, 3), np.log(1 / (1 + np.exp(-4.0)))), rtol=1e-5)
    term.stream(torch.randn(1, 5, 8), None).sum().backward()
    assert all(bool((p.grad != 0).all()) for p in term.parameters())


def test_attention_without_the_stream_says_what_is_missing():
    with pytest.raises(UsageError, match="q_streams and k_streams"):
        ForgetGate(1, 4)(Tile(torch.tensor([[0]]), torch.tensor([[0]]), torch.float32))
