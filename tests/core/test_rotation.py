"""Turning pairs of channels, cutting queries by reach, and the centre of a plan."""

import numpy as np
import pytest
import torch

from lengthen.core import Causal, Coordinates, Everywhere, Layout, Rotation, Scheme, UsageError, order


class Given(Rotation):
    """Factors written down beforehand."""

    def __init__(self, size: int, interleaved: bool, table: np.ndarray):
        super().__init__(size, interleaved)
        self.table = table

    def factors(self, pos, centre, keys):
        return torch.from_numpy(self.table)[pos.long()]


class Centred(Rotation):
    """Queries carry their distance to the centre, keys theirs: shows what the core passes in."""

    causal_only, cacheable = True, False

    def __init__(self, reach: int | None):
        super().__init__(2, interleaved=True)
        self.reach = reach

    def factors(self, pos, centre, keys):
        return torch.complex((pos - centre)[..., None], torch.zeros_like(pos)[..., None])


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("size", "head"), [(2, 2), (8, 8), (4, 10), (6, 7)])
def test_pairs_are_complex_numbers_times_their_factor(interleaved, size, head):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(5, size // 2)) + 1j * rng.normal(size=(5, size // 2))
    x = rng.normal(size=(2, 3, 5, head))
    first, second = (slice(0, size, 2), slice(1, size, 2)) if interleaved else (slice(0, size // 2), slice(size // 2, size))
    product = (x[..., first] + 1j * x[..., second]) * table
    expected = x.copy()
    expected[..., first], expected[..., second] = product.real, product.imag
    scheme = Scheme(rotation=Given(size, interleaved, table))
    turned = scheme.turn_queries(torch.from_numpy(x), Layout.plain(5))
    np.testing.assert_allclose(turned.numpy(), expected, atol=1e-14)


def test_channels_beyond_the_size_pass_through_bit_for_bit():
    x = torch.randn(1, 1, 3, 64).bfloat16()
    turned = Scheme(rotation=Given(16, True, np.exp(1j * np.ones((3, 8))))).turn_keys(x, Layout.plain(3))
    assert turned.dtype == torch.bfloat16 and torch.equal(turned[..., 16:], x[..., 16:])
    assert not torch.equal(turned[..., :16], x[..., :16])


@pytest.mark.parametrize("interleaved", [True, False])
def test_strided_and_offset_views_turn_as_their_copies(interleaved):
    table = np.exp(1j * np.arange(12).reshape(3, 4))
    scheme = Scheme(rotation=Given(8, interleaved, table))
    flat = torch.randn(2 * 3 * 2 * 9 + 1, dtype=torch.float64)[1:].view(2, 3, 2, 9)[..., :8].transpose(1, 2)
    wide = torch.randn(2, 2, 3, 16, dtype=torch.float64)[..., ::2]
    for x in (flat, wide):
        copy = torch.tensor(x.tolist(), dtype=torch.float64)
        torch.testing.assert_close(scheme.turn_queries(x, Layout.plain(3)), scheme.turn_queries(copy, Layout.plain(3)))


@pytest.mark.parametrize("size", [3, 0, -2])
def test_an_odd_size_is_refused(size):
    with pytest.raises(UsageError, match=f"'size' .*got {size}"):
        Given(size, True, np.ones((1, 1)))


def test_a_causal_only_rotation_refuses_to_look_ahead():
    with pytest.raises(UsageError, match="must be causal"):
        Scheme(rotation=Centred(4), pattern=Everywhere())
    assert Scheme(rotation=Centred(4), pattern=Causal()).blocks(Layout.plain(3)) == [slice(0, 3)]


def cuts(reach: int, line: Coordinates) -> list[tuple[int, int]]:
    return [(s.start, s.stop) for s in Scheme(rotation=Centred(reach)).blocks(Layout(line, line))]


def test_runs_are_cut_by_tokens():
    assert cuts(4, Coordinates.plain(10)) == [(0, 4), (4, 8), (8, 10)]
    assert cuts(4, Coordinates.plain(10, start=10**6)) == [(0, 4), (4, 8), (8, 10)]


def test_each_block_spans_at_most_the_reach_in_every_row_and_no_block_could_be_longer():
    generator = torch.Generator().manual_seed(0)
    idx = torch.arange(200)[None].expand(3, -1)
    for most in (3, 40, 10**6):
        pos = torch.randint(0, most, (3, 200), generator=generator).sort(1).values
        blocks = cuts(50, Coordinates(idx, pos))
        assert [b[0] for b in blocks] + [200] == [0] + [b[1] for b in blocks]
        for first, last in blocks:
            assert int((pos[:, first:last].amax(1) - pos[:, first:last].amin(1)).max()) <= 50
            wider = pos[:, first : last + 1]
            assert last == 200 or int((wider.amax(1) - wider.amin(1)).max()) > 50


def test_padding_neither_cuts_nor_moves_the_centre():
    valid = torch.tensor([[False, False, True, True, True], [True, True, True, True, False]])
    line = order(valid, None)
    far = line.at(torch.where(valid, line.pos + 1000, 10**7))
    assert cuts(4, far) == [(0, 5)]
    layout = Layout(far, far)
    turned = Scheme(rotation=Centred(4)).turn_queries(torch.ones(2, 1, 5, 2, dtype=torch.float64), layout)
    assert turned[:, 0, :, 0].tolist() == [[0, 0, -2, -1, 0], [-3, -2, -1, 0, 0]]


def test_a_row_of_padding_alone_stays_finite():
    valid = torch.tensor([[False, False], [True, True]])
    line = order(valid, None)
    turned = Scheme(rotation=Centred(4)).turn_queries(torch.ones(2, 1, 2, 2, dtype=torch.float64), Layout(line, line))
    assert turned[:, 0, :, 0].tolist() == [[0, 0], [-1, 0]]


def test_packed_documents_are_cut_by_their_own_positions():
    doc = torch.tensor([[0] * 6 + [1] * 6])
    line = order(None, doc)
    assert line.pos.tolist() == [[0, 1, 2, 3, 4, 5] * 2]
    assert cuts(5, line) == [(0, 12)]
    assert cuts(3, line) == [(0, 4), (4, 6), (6, 10), (10, 12)]
