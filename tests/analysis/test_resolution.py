"""Attention resolution against its closed form, published design curves, and brute force on a model."""

import math

import numpy as np
import pytest
import torch

from lengthen.analysis import analytic_scores, measured_scores, resolution, resolutions
from lengthen.core import Embedding, LengthError, Scheme, Shape, UsageError, build
from lengthen.models import make_decoder, preset

SHAPE = Shape(heads=2, groups=2, head_size=8, width=16, train_length=16)


@pytest.mark.parametrize("a", [0.5, 0.25, 0.0625, 1 / 256])
@pytest.mark.parametrize("n", [1023, 2047])
def test_closed_form_of_a_linear_curve(a, n):
    r = math.exp(-a)
    closed = (1 - r) * (1 - r ** (2 * n + 2)) / (1 - r**2) / ((1 - r ** (n + 1)) / (1 - r)) ** 2
    assert resolution(-a * np.arange(n + 2)) == pytest.approx(closed, rel=1e-10)


def test_published_values():
    assert resolution(-0.5 * np.arange(1025)) == pytest.approx(0.09636798452005171, rel=1e-12)
    assert resolution(-np.arange(1025) / 256) == pytest.approx(7.898636126923922e-06, rel=1e-9)
    assert resolution(np.array([0.0, -1, -2, -3])) == pytest.approx(0.32272476305972325, rel=1e-12)
    assert resolution(0.1 * np.arange(11)) == pytest.approx(-0.011369775125945879, rel=1e-12)
    assert resolution(np.array([50.0] + [0.0] * 10)) == pytest.approx(1.0, abs=1e-12)
    assert resolution(np.full(11, 3.7)) == 0.0


def test_a_constant_changes_nothing_however_large():
    s = np.random.default_rng(0).normal(size=40)
    for shift in (800.0, -800.0, 1e5):
        assert resolution(s + shift) == pytest.approx(resolution(s), rel=1e-9)


def test_hidden_distances_leave_the_sums_and_the_edge_counts_as_a_drop():
    s = np.array([1.0, 0.5, -np.inf, -np.inf, -np.inf])
    p = np.exp(s[:2]) / np.exp(s[:2]).sum()
    assert resolution(s) == pytest.approx(p[0] * (p[0] - p[1]) + p[1] ** 2, rel=1e-14)
    assert resolution(np.array([0.0, -np.inf])) == 1.0


@pytest.mark.parametrize("s", [[1.0], [[1.0, 2.0]], [np.nan, 0.0], [-np.inf, 0.0], [np.inf, 0.0]])
def test_bad_curves_are_refused(s):
    with pytest.raises(UsageError, match="Resolution needs"):
        resolution(np.array(s))


def test_resolutions_at_lengths():
    s = -0.25 * np.arange(65)
    found = resolutions(s, [16, 64])
    assert found == {16: resolution(s[:17]), 64: resolution(s)}
    with pytest.raises(UsageError, match="up to distance 65; the curve ends at 64"):
        resolutions(s, [65])


@pytest.mark.parametrize(
    ("spec", "expected"),
    [("rope", 0.00012838341581370563), ("xpos", 0.00014836542004804178)],
)
def test_design_curves_of_the_paper(spec, expected):
    """s = g / sqrt(d) at d = 64, N = 1023, computed elsewhere from equations 3 and 8."""
    s = analytic_scores(build(spec, Shape(1, 1, 64, 64, 512)), Shape(1, 1, 64, 64, 512), 1024, alignment=0.5)
    assert s[0] == pytest.approx(32 / 8, rel=1e-14)
    assert resolution(s) == pytest.approx(expected, rel=1e-10)


def test_xpos_design_curve_values():
    shape = Shape(1, 1, 64, 64, 512)
    s = 4 * analytic_scores(build("xpos", shape), shape, 2048)
    expected = {1: 30.886894874392205, 16: 19.227077771728453, 512: 6.292263724551689, 2048: 2.455902916821189}
    for n, g in expected.items():
        assert s[n] == pytest.approx(g, rel=1e-9)


def test_alibi_is_a_line_of_the_mean_slope_over_constant_content():
    s = analytic_scores(build("alibi", SHAPE), SHAPE, 20, alignment=0.5)
    np.testing.assert_allclose(s, 0.5 * 8**0.5 - (1 / 16 + 1 / 256) / 2 * np.arange(21), atol=1e-13)


def test_no_positions_resolve_nothing():
    s = analytic_scores(build("nope", SHAPE), SHAPE, 20)
    assert np.ptp(s) < 1e-14 and abs(resolution(s)) < 1e-15


@pytest.mark.parametrize(("pattern", "beyond"), [("window:tokens=5", 5), ("bca:block=4", 8), ("bca:block=1", 2)])
def test_distances_beyond_a_pattern_are_hidden(pattern, beyond):
    open_, masked = (analytic_scores(build(s, SHAPE), SHAPE, 20) for s in ("rope", f"rope+{pattern}"))
    np.testing.assert_allclose(masked[:beyond], open_[:beyond], atol=1e-13)
    assert np.isneginf(masked[beyond:]).all()
    assert len(set(resolutions(masked, [beyond, 15, 20]).values())) == 1


def test_a_temperature_averages_over_the_queries_that_see_the_distance():
    s = analytic_scores(build("nope+log_n", SHAPE), SHAPE, 9)
    expected = [np.mean([math.log(i + 1) for i in range(n, 10)]) / math.log(16) * 8**0.5 for n in range(10)]
    np.testing.assert_allclose(s, expected, atol=1e-13)


class Circle(Embedding):
    """Position vectors of norm pos + 1 on a spiral, so that only a per-token norm makes them comparable."""

    def forward(self, x, pos):
        angle = 0.1 * pos[..., None].double() * torch.arange(1, x.shape[-1] // 2 + 1)
        wave = torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)
        return x + (pos[..., None] + 1) * wave


def test_an_embedding_gives_the_inner_products_of_its_normalised_vectors():
    s = analytic_scores(Scheme(embedding=Circle()), SHAPE, 12)
    n = np.arange(13)[:, None]
    np.testing.assert_allclose(s, 8**0.5 * np.cos(0.1 * n * np.arange(1, 9)).mean(1), atol=1e-13)
    with pytest.raises(UsageError, match="2 x 8 and 20"):
        analytic_scores(Scheme(embedding=Circle()), Shape(2, 2, 8, 20, 16), 12)


class Table(Embedding):
    """Ends at 8."""

    def forward(self, x, pos):
        raise LengthError(f"No entry for position {int(pos.max())}.")


def test_a_table_that_ends_says_so():
    with pytest.raises(LengthError, match="position 12"):
        analytic_scores(Scheme(embedding=Table()), SHAPE, 12)


def test_the_scheme_is_left_as_it_was():
    scheme = build("rope+ssmax", SHAPE).train()
    analytic_scores(scheme, SHAPE, 4)
    assert scheme.training and scheme.temperature.s.dtype == torch.float32


def brute_force(model, ids: torch.Tensor, n: int, slopes: list[float], window: int) -> np.ndarray:
    """Projections caught by hooks; everything after them, in numpy: RoPE, the scale, ALiBi, means over what is visible."""
    caught = []
    hooks = [b.attention.qkv.register_forward_hook(lambda m, a, out: caught.append(out.detach().numpy())) for b in model.blocks]
    model.eval()(ids)
    for hook in hooks:
        hook.remove()
    size, found = 16, [[] for _ in range(n + 1)]
    for out in caught:
        heads = out.reshape(*out.shape[:2], 8, size).transpose(0, 2, 1, 3)
        for h in range(4):
            turned = [heads[:, i, :, 0::2] + 1j * heads[:, i, :, 1::2] for i in (h, 4 + h // 2)]
            theta = 10_000.0 ** (-np.arange(0, size, 2) / size)
            for i in range(ids.shape[1]):
                for d in range(min(i + 1, n + 1, window)):
                    turn = np.exp(1j * d * theta)
                    dots = (turned[0][:, i] * turn * turned[1][:, i - d].conj()).real.sum(-1) / size**0.5
                    found[d].extend(dots - slopes[h] * d)
    return np.array([np.mean(f) if f else -np.inf for f in found])


@pytest.mark.parametrize("budget", [2**22, 100])
@pytest.mark.parametrize("window", [99, 6])
def test_measured_scores_are_the_brute_force_mean(monkeypatch, budget, window):
    from lengthen.analysis.resolution import _DistanceMeans

    monkeypatch.setitem(_DistanceMeans.add.__globals__, "_BUDGET", budget)
    model = make_decoder(preset("tiny", groups=2, dropout=0.5), f"rope+alibi+window:tokens={window}", train_length=16, seed=1)
    model = model.double().train()
    ids = torch.randint(0, 256, (2, 20), generator=torch.Generator().manual_seed(0))
    measured = measured_scores(model, ids, 15)
    assert model.training and all(m.training for m in model.modules())
    expected = brute_force(model, ids, 15, [1 / 4, 1 / 16, 1 / 64, 1 / 256], window)
    np.testing.assert_allclose(measured, expected, rtol=1e-10, atol=1e-12)


def test_measured_scores_leave_padding_and_other_documents_out():
    model = make_decoder(preset("tiny"), "rope", train_length=16, seed=1).double()
    ids = torch.randint(0, 256, (1, 12), generator=torch.Generator().manual_seed(0))
    alone = measured_scores(model, ids, 8)
    padded = torch.cat((torch.zeros(1, 5, dtype=torch.long), ids), 1)
    valid = torch.arange(17)[None] >= 5
    np.testing.assert_allclose(measured_scores(model, padded, 8, valid=valid), alone, atol=1e-12)
    twice, doc = torch.cat((ids, ids), 1), torch.arange(24)[None] // 12
    np.testing.assert_allclose(measured_scores(model, twice, 8, doc=doc), alone, atol=1e-12)


def test_a_distance_that_the_input_does_not_have_is_refused():
    model = make_decoder(preset("tiny"), "rope", train_length=16)
    with pytest.raises(UsageError, match="Distance 12 needs inputs of at least 13 tokens, got 12"):
        measured_scores(model, torch.zeros(1, 12, dtype=torch.long), 12)
