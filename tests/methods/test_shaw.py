"""Shaw: keys and values with a vector per pair, written out as the paper does (arXiv:1803.02155, equations 3 and 4)."""

import numpy as np
import pytest
import torch

from lengthen.core import Causal, Everywhere, Layout, Shape, Tile, UsageError, build
from lengthen.methods.shaw import ShawKeys

INDEX_K2_L5 = [[2, 3, 4, 4, 4], [1, 2, 3, 4, 4], [0, 1, 2, 3, 4], [0, 0, 1, 2, 3], [0, 0, 0, 1, 2]]
"""clip(j - i, -2, 2) + 2."""


def test_vectors_are_looked_up_at_the_published_indices():
    term, tokens = ShawKeys(4, clip=2), torch.arange(5)[None]
    index = term.vectors.index(Tile(tokens, tokens, torch.float32), torch.zeros(1, 1, 5, 4))
    np.testing.assert_array_equal(index[0, 0], INDEX_K2_L5)


def attention(scheme, q, k, v) -> torch.Tensor:
    """The output that the plan defines, [B, H, Q, D]."""
    plan = scheme.plan(q, k, v, Layout.plain(q.shape[2], k.shape[2]))
    return plan.values(plan.logits().masked_fill(~plan.visible(), float("-inf")).softmax(-1))


def written_out(scheme, q, k, v, shown) -> np.ndarray:
    """Softmax attention with a^K and a^V added to each key and value: [H, Q, D], by loops over heads and queries."""
    keys = scheme.terms[0].vectors.table.detach().numpy()
    values = scheme.value_terms[0].vectors.table.detach().numpy() if len(scheme.value_terms) else np.zeros_like(keys)
    clip, (heads, queries, size), n = len(keys) // 2, q.shape, k.shape[1]
    out = np.zeros_like(q)
    for h in range(heads):
        for i in range(queries):
            at = i + n - queries
            r = np.clip(np.arange(n) - at, -clip, clip) + clip
            score = (k[h] + keys[r]) @ q[h, i] / size**0.5
            weight = np.exp(score - score.max()) * shown(at, np.arange(n))
            out[h, i] = weight / weight.sum() @ (v[h] + values[r])
    return out


@pytest.mark.parametrize("options", ["", ":bidirectional=True", ":values=False", ":clip=1"])
@pytest.mark.parametrize(("queries", "keys"), [(9, 9), (3, 9), (1, 1)])
def test_attention_is_the_papers(options, queries, keys):
    torch.manual_seed(0)
    scheme = build(f"shaw{options}", Shape(head_size=6)).double()
    q, k, v = (torch.randn(1, 3, n, 6, dtype=torch.float64) for n in (queries, keys, keys))
    shown = (lambda i, j: j == j) if scheme.pattern == Everywhere() else (lambda i, j: j <= i)
    expected = written_out(scheme, *(x[0].numpy() for x in (q, k, v)), shown)
    np.testing.assert_allclose(attention(scheme, q, k, v)[0].detach(), expected, rtol=1e-10, atol=1e-12)


def test_clip_holds_a_million_tokens_away_and_real_positions_round():
    term = ShawKeys(4, clip=3).double()
    q = torch.randn(1, 2, 1, 4, dtype=torch.float64)
    tile = Tile(torch.tensor([[1e6]]), torch.tensor([[0.0, 1e6 - 1.6, 1e6 + 1.0, 3e6]]), torch.float64, scale=0.7, q=q)
    expected = 0.7 * q[0, :, 0].numpy() @ term.vectors.table.detach().numpy()[[0, 1, 4, 6]].T
    np.testing.assert_allclose(term(tile)[0, :, 0].detach(), expected, rtol=1e-12)


def test_both_tables_learn_and_are_not_one():
    scheme = build("shaw:clip=2,bidirectional=True", Shape(head_size=4)).double()
    q, k, v = (torch.randn(2, 3, 6, 4, dtype=torch.float64) for _ in range(3))
    attention(scheme, q, k, v).square().sum().backward()
    grads = [p.grad for p in scheme.parameters()]
    assert len(grads) == 2 and all(g.shape == (5, 4) and bool((g != 0).all()) for g in grads)
    assert not torch.equal(*scheme.parameters())


def test_settings():
    assert build("shaw", Shape()).pattern == Causal() and not build("shaw:values=False", Shape()).value_terms
    with pytest.raises(UsageError, match=r"'clip' of Shaw must be .*got 0"):
        build("shaw:clip=0", Shape())
