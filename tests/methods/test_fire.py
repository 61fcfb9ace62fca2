"""FIRE: published inputs of the network, the formula, and its two learned scalars (arXiv:2310.04418)."""

import numpy as np
import pytest
import torch

from lengthen.core import Shape, Tile, UsageError, build
from lengthen.methods.fire import FIRE

NORMALISED = {
    (0, 0): 0.0,
    (1, 0): 0.024098146076435647,
    (10, 0): 0.17525475289099296,
    (10, 5): 0.10251745851438353,
    (511, 0): 0.9995149164027127,
    (512, 0): 0.9999997471608371,
    (1000, 0): 0.9999997833209816,
    (1000, 500): 0.8519441185625369,
    (4096, 0): 0.9999998338213586,
    (4096, 4095): 0.015838516192855295,
}
"""(query, key): what the network reads at c = 0.1, L = 512."""


def formula(term: FIRE, q, k) -> np.ndarray:
    """[H, Q, K] in float64 numpy, from the numbers of the module."""
    c, multiplier = float(term.c.detach()), float(term.multiplier.detach())
    psi = lambda x: np.log(np.abs(c * x) + 1)
    q, k = np.asarray(q, dtype=np.float64), np.asarray(k, dtype=np.float64)
    x = psi(q[:, None] - k) / (psi(np.maximum(q, abs(multiplier * term.threshold)))[:, None] + 1e-6)
    up, down = ([p.detach().double().numpy() for p in layer.parameters()] for layer in (term.up, term.down))
    hidden = np.maximum(x[..., None] * up[0][:, 0] + up[1], 0)
    return np.moveaxis(hidden @ down[0].T + down[1], -1, 0)


def test_network_reads_the_published_normalised_distances():
    term = FIRE(2, threshold=512).double()
    for (i, j), expected in NORMALISED.items():
        got = term.normalised(Tile(torch.tensor([[i]]), torch.tensor([[j]]), torch.float64))
        # c = 0.1 is stored as float32 first, 1.5e-8 off.
        assert float(got.detach()) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("multiplier", [1.0, -0.5])
def test_bias_follows_the_formula_for_whole_and_real_positions_on_any_tile(multiplier):
    torch.manual_seed(0)
    term = FIRE(3, threshold=20.0).double()
    with torch.no_grad():
        term.c.fill_(0.3)
        term.multiplier.fill_(multiplier)
    q = torch.tensor([[0.0, 3.5, 19.0, 40.0, 1e6]], dtype=torch.float64)
    k = torch.tensor([[0.0, 2.0, 60.0, 999_999.0]], dtype=torch.float64)
    whole = term(Tile(q, k, torch.float64))
    np.testing.assert_allclose(whole[0].detach(), formula(term, q[0], k[0]), rtol=1e-12)
    part = term(Tile(q[:, 2:4], k[:, 1:], torch.float64))
    np.testing.assert_allclose(part.detach(), whole[:, :, 2:4, 1:].detach(), rtol=1e-14)


@pytest.mark.parametrize("name", ["c", "multiplier"])
def test_learned_scalars_have_the_slope_of_finite_differences(name):
    torch.manual_seed(0)
    term = FIRE(2, threshold=30.0).double()
    tile = Tile(torch.tensor([[5, 29, 50]]), torch.tensor([[0, 4, 28]]), torch.float64)
    term(tile).sum().backward()
    parameter, values = getattr(term, name), []
    slope = float(parameter.grad)
    for step in (1e-6, -1e-6):
        with torch.no_grad():
            parameter += step
            values.append(float(term(tile).sum()))
            parameter -= step
    assert slope != 0 and slope == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-5)


def test_bfloat16_parameters_under_autocast_still_meet_exact_distances():
    term = FIRE(2, threshold=32.0).bfloat16()
    q, k = torch.tensor([[1000, 10**6]]), torch.tensor([[742, 743, 744]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = term(Tile(q, k, torch.float32))
    assert got.dtype == torch.float32
    np.testing.assert_allclose(got[0].detach(), formula(term, q[0], k[0]), rtol=2e-5, atol=2e-6)


def test_threshold_starts_at_a_quarter_of_the_training_length():
    assert build("fire", Shape(train_length=2048)).terms[0].threshold == 512
    assert build("fire:threshold=100", Shape(train_length=2048)).terms[0].threshold == 100


@pytest.mark.parametrize("setting", ["threshold", "c", "hidden"])
def test_sizes_below_zero_are_refused(setting):
    with pytest.raises(UsageError, match=f"'{setting}' of FIRE must be .*got -1"):
        build(f"fire:{setting}=-1", Shape())
