"""Errors against float64, against a computation that is written out here."""

import math
from itertools import pairwise

import pytest
import torch

from lengthen.bench.accuracy import errors, exact, sampled
from lengthen.bench.case import Case
from lengthen.bench.steps import own_step, peer_step
from lengthen.core import Scheme


def attention(q, k, v, added):
    """softmax(q k^T / sqrt(D) + added) v, row by row, causal, in float64."""
    rows = []
    for i in range(q.shape[2]):
        scores = (k[:, :, : i + 1] @ q[:, :, i, :, None])[..., 0] / math.sqrt(q.shape[-1]) + added(i)
        rows.append((scores.softmax(-1)[..., None] * v[:, :, : i + 1]).sum(2))
    return torch.stack(rows, dim=2)


def alibi(i: int) -> torch.Tensor:
    """Slopes 2^-1, 2^-2, ..., 2^-8 of eight heads (Press et al. 2022): [H, i + 1]."""
    return -torch.arange(i, -1, -1).double() * 0.5 ** torch.arange(1, 9).double()[:, None]


@pytest.mark.parametrize(("method", "added"), [("alibi", alibi), ("nope", lambda i: 0.0)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_exact_rows_are_those_of_the_formula(method, added, dtype):
    case = Case(method, None, dtype, 100, "backward", head_size=8)
    scheme, scene = case.scheme(), case.scene()
    q = scene.q.detach().double().requires_grad_()
    expected = attention(q, scene.k.detach().double(), scene.v.detach().double(), added)
    (gradient,) = torch.autograd.grad(expected, q, scene.grad.double())
    for rows in sampled(100):
        output, of_q = exact(scheme, scene, rows)
        torch.testing.assert_close(output, expected.detach()[:, :, rows], atol=1e-12, rtol=0)
        torch.testing.assert_close(of_q, gradient[:, :, rows], atol=1e-12, rtol=0)


def test_a_planted_error_is_found_at_its_size():
    case = Case("alibi", None, "float32", 100, "backward", head_size=8)
    scheme, scene = case.scheme(), case.scene()
    found = own_step(case, scheme, scene)()
    sound = errors(scheme, scene, found, backward=True)
    assert sound.output < 2e-6 and sound.gradient < 2e-6
    bad = [t.clone() for t in found]
    bad[0][0, 3, -1, 2] += 0.25
    bad[1][0, 3, 0, 2] -= 0.5
    off = errors(scheme, scene, bad, backward=True)
    assert off.output == pytest.approx(0.25, abs=1e-5) and off.gradient == pytest.approx(0.5, abs=1e-5)


def test_what_is_not_finite_is_an_infinite_error():
    case = Case("nope", None, "float32", 8, "forward", head_size=8)
    scene = case.scene()
    broken = [torch.full(scene.q.shape, float("nan"))]
    assert errors(Scheme(), scene, broken, backward=False).output == float("inf")


def test_rows_are_sampled_from_the_first_to_the_last():
    found = sampled(16384)
    assert found[0].start == 0 and found[-1].stop == 16384 and len(found) == 8
    assert all(a.stop <= b.start for a, b in pairwise(found))
    assert sampled(32) == [slice(0, 32)] and sampled(33)[-1].stop == 33


METHODS = [
    "rope",
    "xpos",
    "fire",
    "fox",
    "shaw",
    "bipe",
    "randomised",
    "log_n",
    "rope+window:tokens=9",
    "t5:bidirectional=True",
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["forward", "learned", "decode"])
def test_every_kind_of_encoding_is_measured_as_it_is(method, kind):
    """Each stage of a scheme reaches the reference: a stage that were dropped on one side would show."""
    case = Case(method, None, "float32", 70, kind, heads=4, groups=2, head_size=8)
    scheme, scene = case.scheme(), case.scene()
    if kind == "learned" and not any(p.requires_grad for p in scheme.parameters()):
        pytest.skip(f"{method} has nothing to learn")
    turned = kind == "decode" and scheme.caches_turned_keys
    found = errors(scheme, scene, own_step(case, scheme, scene)(), case.backward, turned)
    assert found.output < 5e-6 and (found.gradient is None or found.gradient < 2e-5)


@pytest.mark.parametrize("kind", ["forward", "backward", "decode"])
def test_layers_that_share_a_layout_add_up_their_gradients(kind):
    case = Case("alibi", None, "float32", 40, kind, head_size=8, layers=3)
    scheme, scene = case.scheme(), case.scene()
    found = errors(scheme, scene, own_step(case, scheme, scene)(), case.backward, layers=3)
    peer = errors(Scheme(), scene, peer_step(case, scene)(), case.backward, layers=3)
    assert max(found.output, peer.output) < 2e-6
    assert not case.backward or max(found.gradient, peer.gradient) < 5e-6
