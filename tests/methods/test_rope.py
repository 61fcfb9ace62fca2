"""RoPE against its formula in numpy float64."""

import numpy as np
import pytest
import torch

from lengthen.core import Coordinates, Layout, UsageError, build
from lengthen.core import Shape as ModelShape

X = np.arange(1.0, 9.0)
THETA8 = np.array([1.0, 0.1, 0.01, 0.001])
TO_HALF = [0, 2, 4, 6, 1, 3, 5, 7]
"""Half-split row r takes interleaved row TO_HALF[r]."""


def shape(head_size: int) -> ModelShape:
    return ModelShape(heads=1, groups=1, head_size=head_size, width=head_size, train_length=16)


def at(*positions: int) -> Layout:
    pos = torch.tensor([positions])
    line = Coordinates(torch.arange(len(positions))[None], pos)
    return Layout(line, line)


def turn(spec: str, x, *positions: int) -> torch.Tensor:
    x = torch.as_tensor(x)
    scheme = build(spec, shape(x.shape[-1]))
    return scheme.turn_queries(x.expand(1, 1, len(positions), -1), at(*positions))[0, 0]


def test_published_values_interleaved_and_half_split():
    interleaved = turn("rope", X, 0, 7).numpy()
    half = turn("rope:interleaved=false", X, 0, 7).numpy()
    np.testing.assert_array_equal(interleaved[0], X)
    np.testing.assert_array_equal(half[0], X)
    expected = [-0.5600709430942735, 2.1647911074053985, -0.28234418709729914, 4.992021810851027]
    np.testing.assert_allclose(interleaved[1, :4], expected, rtol=1e-13)
    expected = [-2.5310307392506406, -2.33562174885717, 2.5030530693971094, 3.943902457732379]
    np.testing.assert_allclose(half[1, :4], expected, rtol=1e-13)


def test_half_split_is_interleaved_under_the_permutation_of_channels():
    x = np.random.default_rng(0).normal(size=8)
    np.testing.assert_allclose(
        turn("rope:interleaved=false", x[TO_HALF], 5)[0].numpy(), turn("rope", x, 5)[0].numpy()[TO_HALF], rtol=1e-14
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("spec", ["rope", "rope:interleaved=false"])
def test_angles_are_exact_far_out_in_any_type_and_after_bfloat16(dtype, spec):
    far = [255, 257, 16_000, 16_001, 131_072, 1_000_000]
    x = torch.zeros(64)
    x[slice(0, 64, 2) if spec == "rope" else slice(0, 32)] = 1
    turned = build(spec, shape(64)).bfloat16().turn_queries(x.to(dtype).expand(1, 1, 6, -1), at(*far))[0, 0]
    angle = np.array(far)[:, None] * 10_000.0 ** (-np.arange(0, 64, 2) / 64)
    cos = turned[:, ::2] if spec == "rope" else turned[:, :32]
    assert turned.dtype == dtype
    np.testing.assert_allclose(cos.double().numpy(), np.cos(angle), atol={"float32": 1e-6}.get(str(dtype)[6:], 4e-3))


def test_scores_depend_on_the_distance_alone_for_any_shift():
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 2, 64, generator=generator)
    theta = 10_000.0 ** (-np.arange(0, 64, 2) / 64)
    a, b = (t[0, 0].double().numpy()[:, 0::2] + 1j * t[0, 0].double().numpy()[:, 1::2] for t in (q, k))
    expected = (a[1] * np.exp(1j * 37 * theta) * b[0].conj()).real.sum() / 8
    for shift in (0, 1, 1000, 100_000, 1_000_000):
        score = build("rope", shape(64)).plan(q, k, k, at(shift, shift + 37)).logits()[0, 0, 1, 0]
        assert float(score) == pytest.approx(expected, abs=3e-6)


def test_partial_rotary_counts_frequencies_over_the_turned_channels():
    scheme = build("rope:fraction=0.25", shape(64))
    np.testing.assert_allclose(scheme.rotation.inv_freq, 10_000.0 ** (-np.arange(0, 16, 2) / 16), rtol=1e-14)
    x = torch.randn(64)
    assert torch.equal(turn("rope:fraction=0.25", x, 9)[0, 16:], x[16:])


def test_bad_sizes_are_refused_with_their_numbers():
    with pytest.raises(UsageError, match=r"even, got 7. Use 6 or 8"):
        build("rope", shape(7))
    with pytest.raises(UsageError, match="even, got 3"):
        build("rope:fraction=0.5", shape(6))
    for fraction in (0, 1.5, -1):
        with pytest.raises(UsageError, match=rf"\(0, 1\], got {fraction}"):
            build(f"rope:fraction={fraction}", shape(8))
    with pytest.raises(UsageError, match="got -5"):
        build("rope:base=-5", shape(8))
