"""NoPE: nothing but content and the causal mask."""

import numpy as np
import torch

from lengthen.backends import attend
from lengthen.core import Coordinates, Everywhere, Layout, build


def inputs() -> torch.Tensor:
    return torch.randn(3, 2, 2, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_causal_attention_of_the_contents():
    q, k, v = inputs()
    scores = np.einsum("bhqd,bhkd->bhqk", q.numpy(), k.numpy()) / 2
    weights = np.exp(scores) * np.tril(np.ones((6, 6)))
    expected = weights / weights.sum(-1, keepdims=True) @ v.numpy()
    np.testing.assert_allclose(attend(build("nope"), q, k, v).numpy(), expected, atol=1e-13)


def test_positions_do_not_enter():
    q, k, v = inputs()
    line = Coordinates.plain(6)
    moved = line.at(torch.tensor([[5, 900, 3, 10**6, 0, 17]]))
    assert torch.equal(attend(build("nope"), q, k, v), attend(build("nope"), q, k, v, Layout(moved, moved)))


def test_without_the_mask_it_cannot_tell_orders_apart():
    x, mixed = inputs(), [3, 0, 5, 1, 4, 2]
    both_ways = build("nope").with_pattern(Everywhere())
    y = attend(both_ways, *x)[:, :, mixed]
    torch.testing.assert_close(attend(both_ways, *x[..., mixed, :]), y)
    assert not torch.allclose(attend(build("nope"), *x[..., mixed, :]), attend(build("nope"), *x)[:, :, mixed])


def test_it_has_no_weights_and_is_relative():
    assert list(build("nope").parameters()) == [] and build("nope").relative
