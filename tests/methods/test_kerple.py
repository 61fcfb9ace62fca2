"""KERPLE: published formulas, the released start, and slopes that are finite everywhere (arXiv:2205.09921)."""

import numpy as np
import pytest
import torch

from lengthen.core import Everywhere, Shape, Tile, UsageError, build
from lengthen.methods.kerple import KERPLE

STEPS = [0.0, 1.0, 2.0, 8.0, 64.0, 512.0, 1024.0, 4096.0]
LOG = [0, -0.6081976621622466, -1.0397207708399179, -2.4141568686511503, -5.244761342199721, -8.32361412734283]
LOG += [-9.360413767756153, -11.43766072235835]
POWER = [0, -0.25, -0.3535533905932738, -0.7071067811865476, -2, -5.656854249492381, -8, -16]


def with_values(kernel: str, p: float, a: float) -> KERPLE:
    """One head with these numbers, set through independently inverted maps."""
    term = KERPLE(1, kernel).double()
    inverse_softplus = lambda x: np.log(np.exp(x - 0.01) - 1)
    share = (p - 0.01) / 1.99
    with torch.no_grad():
        term.free_a.fill_(inverse_softplus(a))
        term.free_p.fill_(np.log(share / (1 - share)) if kernel == "power" else inverse_softplus(p))
    return term


@pytest.mark.parametrize(
    ("kernel", "p", "a", "expected"),
    [
        ("log", 1.5, 0.5, LOG),
        ("power", 0.5, 0.25, POWER),
        ("power", 1.0, 0.25, [-0.25 * d for d in STEPS]),
    ],
)
def test_kernels_have_the_published_values_in_both_directions(kernel, p, a, expected):
    term, steps = with_values(kernel, p, a), torch.tensor(STEPS, dtype=torch.float64)
    for side in (steps, -steps):
        np.testing.assert_allclose(term.at(side)[0].detach(), expected, rtol=1e-13)


@pytest.mark.parametrize("kernel", ["log", "power"])
def test_initial_numbers_are_uniform_as_released(kernel):
    torch.manual_seed(0)
    term = KERPLE(20_000, kernel).double()
    for values, most in ((term.p().detach(), 2.0), (term.a().detach(), 1.0)):
        quantiles = np.quantile(values.numpy(), np.linspace(0.02, 0.98, 25))
        np.testing.assert_allclose(quantiles, most * np.linspace(0.02, 0.98, 25), atol=0.015 * most)
        assert float(values.min()) > 0.01 and float(values.max()) <= most


@pytest.mark.parametrize("free", [-1e4, 1e4])
@pytest.mark.parametrize("kernel", ["log", "power"])
def test_numbers_stay_within_their_bounds_wherever_training_takes_them(kernel, free):
    term = KERPLE(3, kernel).double()
    with torch.no_grad():
        term.free_p.fill_(free)
        term.free_a.fill_(free)
    a, p = term.a().detach(), term.p().detach()
    assert bool((a >= 0.01).all()) and bool((p >= 0.01).all())
    assert kernel == "log" or bool((p <= 2.0).all())


@pytest.mark.parametrize("kernel", ["log", "power"])
def test_slopes_match_finite_differences_and_are_finite_at_zero_distance(kernel):
    torch.manual_seed(1)
    term = KERPLE(3, kernel).double()
    distance = torch.tensor([0.0, 1.0, -7.0, 300.0], dtype=torch.float64)
    weight = torch.randn(3, 4, dtype=torch.float64)
    (term.at(distance) * weight).sum().backward()
    for parameter in (term.free_p, term.free_a):
        for h in range(3):
            values = []
            for step in (1e-6, -1e-6):
                with torch.no_grad():
                    parameter[h] += step
                    values.append(float((term.at(distance) * weight).sum()))
                    parameter[h] -= step
            assert float(parameter.grad[h]) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-5)
            assert float(parameter.grad[h]) != 0


def test_bfloat16_model_keeps_distances_exact():
    term = KERPLE(2).bfloat16()
    q, k = torch.tensor([[10**6 + 1]]), torch.tensor([[0, 10**6 - 256]])
    p, a = (torch.nn.functional.softplus(x.double()) + 0.01 for x in (term.free_p, term.free_a))
    expected = -p[:, None] * torch.log1p(a[:, None] * torch.tensor([10**6 + 1, 257], dtype=torch.float64))
    got = term(Tile(q, k, torch.float32))[0, :, 0]
    np.testing.assert_allclose(got.detach(), expected.detach(), rtol=1e-6)


def test_kernel_names_are_checked_and_both_directions_are_possible():
    assert build("kerple:bidirectional=True", Shape()).pattern == Everywhere()
    with pytest.raises(UsageError, match="must be 'log' or 'power', got 'cubic'"):
        build("kerple:kernel=cubic", Shape())
