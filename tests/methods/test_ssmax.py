"""SSMax against its closed form."""

import math

import numpy as np
import pytest
import torch

from lengthen.backends import attend
from lengthen.core import Shape, UsageError, build
from lengthen.methods.ssmax import SSMax

SHAPE = Shape(heads=2, groups=2, head_size=4, width=8, train_length=8)


def test_published_values():
    seen = torch.tensor([[1, 2, 16, 1024, 8192]], dtype=torch.float64)
    expected = [0, 0.2980532876407765, 1.192213150563106, 2.9805328764077648, 3.874692739330094]
    with torch.no_grad():
        factor = SSMax(3)(seen)
    assert factor.shape == (1, 3, 5)
    for head in factor[0].numpy():
        np.testing.assert_allclose(head, expected, rtol=1e-7)


def test_the_rate_for_conversion_leaves_the_mean_of_1024_alone():
    assert 1 / np.log(np.arange(1, 1025)).mean() == pytest.approx(0.168, abs=5e-4)


def test_each_head_scales_by_its_own_rate_and_each_query_by_its_own_count():
    q, k, v = torch.randn(3, 1, 2, 7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scheme = build("nope+ssmax", SHAPE).double()
    with torch.no_grad():
        scheme.temperature.s.copy_(torch.tensor([0.5, 2.0]))
        y = attend(scheme, q, k, v)[0].numpy()
    for h, s in enumerate((0.5, 2.0)):
        a, b, c = (t[0, h].numpy() for t in (q, k, v))
        for i in range(7):
            weights = np.exp(s * math.log(i + 1) * (b[: i + 1] @ a[i]) / 2)
            np.testing.assert_allclose(y[h, i], weights / weights.sum() @ c[: i + 1], atol=1e-13)


def test_gradients_reach_every_rate():
    q, k, v = torch.randn(3, 1, 2, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scheme = build("rope+ssmax", SHAPE).double()

    def loss(s: float, head: int) -> torch.Tensor:
        with torch.no_grad():
            scheme.temperature.s[head] = s
        return attend(scheme, q, k, v).square().sum()

    loss(0.43, 1)
    loss(0.5, 0).backward()
    for head, start in ((0, 0.5), (1, 0.43)):
        up, down = loss(start + 1e-5, head).item(), loss(start - 1e-5, head).item()
        loss(start, head)
        assert float(scheme.temperature.s.grad[head]) == pytest.approx((up - down) / 2e-5, rel=1e-6)


@pytest.mark.parametrize("init", [0, -0.43])
def test_a_rate_that_is_not_positive_is_refused(init):
    with pytest.raises(UsageError, match=f"'init' of SSMax must be a positive, .*got {init}"):
        build(f"ssmax:init={init}", SHAPE)
