"""Sinusoids against the papers' formulas in numpy, float64."""

import numpy as np
import pytest
import torch

from lengthen.core import Shape, UsageError, build
from lengthen.methods.sinusoidal import Sinusoidal

POSITIONS = (0, 1, 2, 17, 127, 128, 4095, 65_537, 999_999, 1_000_000)


def interleaved(positions, width, base=10_000.0):
    """Vaswani et al. 2017, section 3.5, channel by channel."""
    table = np.zeros((len(positions), width))
    for row, p in enumerate(positions):
        for c in range(width):
            angle = p / base ** (2 * (c // 2) / width)
            table[row, c] = np.cos(angle) if c % 2 else np.sin(angle)
    return table


def concatenated(positions, width, base=10_000.0):
    """The timescales run geometrically from 1 to `base`, both included; sines, then cosines."""
    timescales = np.geomspace(1.0, base, width // 2) if width > 2 else np.ones(1)
    angle = np.asarray(positions, dtype=np.float64)[:, None] / timescales
    return np.concatenate((np.sin(angle), np.cos(angle)), axis=1)


FORMULAS = {"paper": interleaved, "tensor2tensor": concatenated}


@pytest.mark.parametrize("layout", FORMULAS)
@pytest.mark.parametrize("width", [2, 4, 6, 64])
def test_embedding_is_the_formula(layout, width):
    got = Sinusoidal(width, layout).at(torch.tensor([POSITIONS]))[0].numpy()
    # An angle of 1e6 radians carries a rounding of 1e-10 in float64, in either computation.
    np.testing.assert_allclose(got, FORMULAS[layout](POSITIONS, width), atol=1e-9)


def test_published_rows():
    """PE(100) of eight channels in both layouts, to the digits of an independent computation."""
    paper = [-0.5063656411, 0.8623188723, -0.5440211109, -0.8390715291, 0.8414709848, 0.5403023059, 0.0998334166, 0.9950041653]
    t2t = [-0.5063656411, -0.9974947164, 0.2137806661, 0.0099998333, 0.8623188723, -0.0707410121, 0.9768816852, 0.9999500004]
    for layout, row in (("paper", paper), ("tensor2tensor", t2t)):
        got = Sinusoidal(8, layout).at(torch.tensor([[100]]))[0, 0]
        np.testing.assert_allclose(got.numpy(), row, atol=1e-10)


@pytest.mark.parametrize("layout", FORMULAS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-7), (torch.float16, 5e-4), (torch.bfloat16, 4e-3)]
)
def test_exact_at_a_million_in_any_type(layout, dtype, tolerance):
    """Half of a unit in the last place of values up to 1: positions themselves never pass through the type."""
    scheme = build(f"sinusoidal:layout={layout}", Shape(width=64)).to(dtype)
    got = scheme.embedding(torch.zeros(1, len(POSITIONS), 64, dtype=dtype), torch.tensor([POSITIONS]))
    assert got.dtype == dtype
    np.testing.assert_allclose(got[0].double().numpy(), FORMULAS[layout](POSITIONS, 64), atol=tolerance)


def test_sum_is_rounded_once():
    """In bfloat16 the sum is that of float32, rounded: rounding the sinusoids first would round twice."""
    x = torch.randn(1, 300, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    got = Sinusoidal(16)(x, torch.arange(300)[None])
    exact = torch.from_numpy(x.double().numpy() + interleaved(range(300), 16))
    assert torch.equal(got, exact.float().bfloat16())


def test_real_positions_and_another_base():
    got = Sinusoidal(6, base=100.0).at(torch.tensor([[0.5, 2.25]], dtype=torch.float64))[0].numpy()
    np.testing.assert_allclose(got, interleaved((0.5, 2.25), 6, base=100.0), atol=1e-14)


@pytest.mark.parametrize(
    ("spec", "said"),
    [("sinusoidal:layout=marian", "'paper' or 'tensor2tensor', got 'marian'"), ("sinusoidal:base=0", "'base'.*got 0")],
)
def test_bad_options_are_refused(spec, said):
    with pytest.raises(UsageError, match=said):
        build(spec, Shape(width=64))


def test_odd_width_is_refused():
    with pytest.raises(UsageError, match=r"got 63.*62 or 64"):
        build("sinusoidal", Shape(width=63))
