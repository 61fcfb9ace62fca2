"""Peak memory, against sizes that follow from shapes."""

import pytest

from lengthen.bench.capacity import needed
from lengthen.bench.case import Case
from lengthen.bench.memory import Gauge
from lengthen.core import LengthenError

LENGTH = 768
PLANE = 8 * LENGTH**2 * 4
"""Bytes of one float32 [1, 8, L, L]."""


@pytest.fixture(scope="module")
def gauge():
    with Gauge(1) as gauge:
        yield gauge


def test_the_dense_backend_holds_two_planes_of_scores_at_once(gauge):
    """The softmax of masked logits: one is read while the other is written."""
    extra = gauge.extra_bytes(Case("nope", "dense", "float32", LENGTH, "forward"))
    assert 1.9 * PLANE < extra < 2.4 * PLANE


def test_plain_causal_attention_holds_no_plane(gauge):
    assert gauge.extra_bytes(Case("nope", "sdpa", "float32", LENGTH, "forward")) < 0.25 * PLANE


@pytest.mark.parametrize("method", ["fire", "alibi", "transformer_xl"])
@pytest.mark.parametrize("backend", ["dense", "blocked", None])
def test_what_is_needed_is_estimated_above_what_is_taken(gauge, method, backend):
    for kind in ("forward", "learned"):
        case = Case(method, backend, "float32", LENGTH, kind)
        inputs = 4 * 8 * 64 * LENGTH * 4
        assert gauge.extra_bytes(case) + inputs < needed(case)


def test_a_process_that_dies_is_said_and_replaced(gauge):
    case = Case("nope", "sdpa", "float32", 64, "forward")
    gauge.process.kill()
    with pytest.raises(LengthenError, match="ended the process"):
        gauge.extra_bytes(case)
    assert gauge.extra_bytes(case) >= 0
