"""TISA: published values and direction, r = key - query (arXiv:2106.01950)."""

import numpy as np
import pytest
import torch

from lengthen.core import Everywhere, Shape, Tile, UsageError, build
from lengthen.methods.tisa import TISA

OFFSETS = [-8, -2, -1, 0, 1, 3, 8]
BIAS = [0.05190739180061751, 1.2081027478922763, 1.3630745185368456, 1.3224725237415955]
BIAS += [1.1318782192289571, 0.7018965179946554, 0.30356886899439556]


def with_values(a, b, c) -> TISA:
    term = TISA(1, len(a)).double()
    with torch.no_grad():
        for parameter, values in ((term.a, a), (term.b, b), (term.c, c)):
            parameter.copy_(torch.tensor([values], dtype=torch.float64))
    return term


def test_bias_has_the_published_values():
    term = with_values([1.0, 0.5], [0.1, -0.02], [-1.0, 3.0])
    got = term.at(-torch.tensor(OFFSETS, dtype=torch.float64))
    np.testing.assert_allclose(got[0].detach(), BIAS, rtol=1e-14)


def test_a_bump_at_minus_two_peaks_on_the_key_two_before_the_query():
    term = with_values([1.0], [0.5], [-2.0])
    got = term(Tile(torch.tensor([[5]]), torch.arange(9)[None], torch.float64))[0, 0, 0]
    assert int(got.argmax()) == 3
    np.testing.assert_allclose(got.detach(), np.exp(-0.5 * (np.arange(9) - 3.0) ** 2), rtol=1e-14)


def test_initial_numbers_follow_the_release():
    torch.manual_seed(0)
    term = TISA(4000)
    for parameter, mean, deviation in ((term.a, 0.1, 0.01), (term.b, 0.1, 0.01), (term.c, 0.0, 5.0)):
        assert parameter.shape == (4000, 5)
        assert float(parameter.detach().mean()) == pytest.approx(mean, abs=4 * deviation / 20_000**0.5)
        assert float(parameter.detach().std()) == pytest.approx(deviation, rel=0.03)


def test_slopes_are_the_derivatives_and_finite_a_million_tokens_away():
    term = with_values([1.0, 0.5], [0.1, -0.02], [-1.0, 3.0])
    distance = torch.tensor([0.0, -4.0, 10.0, 1e6, -1e6], dtype=torch.float64)
    term.at(distance).sum().backward()
    r, a, b, c = -distance.numpy()[:, None], np.array([1.0, 0.5]), np.array([0.1, -0.02]), np.array([-1.0, 3.0])
    bump = np.exp(-np.abs(b) * (r - c) ** 2)
    np.testing.assert_allclose(term.a.grad[0], bump.sum(0), rtol=1e-13)
    np.testing.assert_allclose(term.b.grad[0], (-a * np.sign(b) * (r - c) ** 2 * bump).sum(0), rtol=1e-13)
    np.testing.assert_allclose(term.c.grad[0], (2 * a * np.abs(b) * (r - c) * bump).sum(0), rtol=1e-13)


def test_settings():
    assert build("tisa:bidirectional=True", Shape()).pattern == Everywhere()
    with pytest.raises(UsageError, match="at least 1, got 0"):
        build("tisa:kernels=0", Shape())
