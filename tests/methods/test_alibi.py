"""ALiBi: published slopes and biases (arXiv:2108.12409; asymmetric: the released code of arXiv:2305.16843)."""

import numpy as np
import pytest
import torch

from lengthen.core import Causal, Everywhere, Layout, Shape, Tile, UsageError, build
from lengthen.methods.alibi import ALiBi, authors_slopes, geometric_slopes

SHIPPED = {
    1: [2**-8],
    2: [2**-4, 2**-8],
    3: [2**-4, 2**-8, 2**-2],
    6: [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3],
    8: [2.0**-h for h in range(1, 9)],
    12: [2.0**-h for h in range(1, 9)] + [0.7071067811865476, 0.3535533905932738, 0.1767766952966369, 0.08838834764831845],
}


@pytest.mark.parametrize("heads", SHIPPED)
def test_slopes_are_those_of_the_released_code(heads):
    np.testing.assert_allclose(authors_slopes(heads), SHIPPED[heads], rtol=1e-14)


def test_geometric_slopes_follow_the_sentence_of_the_paper():
    expected = [0.3968502629920499, 0.15749013123685915, 0.0625, 0.024803141437003122, 0.009843133202303695, 0.00390625]
    np.testing.assert_allclose(geometric_slopes(6), expected, rtol=1e-14)


def bias(term, queries, keys, dtype=torch.float64):
    layout = Layout.plain(queries, keys)
    return term(Tile(layout.q.pos, layout.k.pos, dtype))[0]


def test_bias_falls_with_distance_and_in_both_directions():
    got = bias(ALiBi(8), 3, 3)[0]
    np.testing.assert_array_equal(got, [[0, -0.5, -1], [-0.5, 0, -0.5], [-1, -0.5, 0]])


def test_asymmetric_keys_before_the_query_get_half_a_token_back():
    got = bias(ALiBi(8, asymmetric=True), 4, 4)[0]
    np.testing.assert_array_equal(
        got, [[0, -0.5, -1, -1.5], [-0.25, 0, -0.5, -1], [-0.75, -0.25, 0, -0.5], [-1.25, -0.75, -0.25, 0]]
    )


def test_float32_is_exact_at_a_million_tokens():
    q, k = torch.tensor([[10**6]]), torch.tensor([[10**6 - 999_999, 10**6 - 1]])
    got = ALiBi(8).bfloat16()(Tile(q, k, torch.float32))[0, :, 0]
    np.testing.assert_array_equal(got, -np.outer(SHIPPED[8], [999_999, 1]).astype(np.float32))


def test_pattern_follows_the_direction():
    assert build("alibi", Shape()).pattern == Causal()
    assert build("alibi:bidirectional=asymmetric", Shape()).pattern == Everywhere()


@pytest.mark.parametrize("spec", ["alibi:slopes=steep", "alibi:bidirectional=both"])
def test_unknown_settings_are_refused_with_the_choices(spec):
    with pytest.raises(UsageError, match="must be '"):
        build(spec, Shape())
