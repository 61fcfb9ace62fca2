"""T5 interpolation: the bucket of a distance that many times as short."""

import math

import pytest
import torch

from lengthen.core import Shape, UsageError, build


def bucket(n: float) -> int:
    """T5's causal rule, 32 buckets to 128 tokens, at a real distance."""
    return math.floor(n) if n < 16 else min(16 + math.floor(math.log(n / 16) / math.log(8) * 16 + 1e-9), 31)


@pytest.mark.parametrize("factor", [1.0, 2.0, 2.5, 8.0])
def test_the_bucket_is_that_of_a_shorter_distance(factor):
    scheme = build(f"t5_interpolation:factor={factor}", Shape())
    term = scheme.terms[0]
    distance = torch.arange(0, 1500, dtype=torch.float64)
    expected = [bucket(float(d) / factor) for d in distance]
    wanted = term.term.table.double()[:, expected] * 4.0
    torch.testing.assert_close(term.at(distance), wanted, rtol=1e-12, atol=0)


def test_in_both_directions_keys_behind_take_the_upper_half():
    term = build("t5_interpolation:factor=2,bidirectional=true", Shape()).terms[0]
    near = term.at(torch.tensor([-2.0, 2.0]))
    torch.testing.assert_close(near, term.term.table[:, [17, 1]] * 4.0)


def test_a_factor_below_one_is_refused():
    with pytest.raises(UsageError, match=r"at least 1, got 0\.5"):
        build("t5_interpolation:factor=0.5")
