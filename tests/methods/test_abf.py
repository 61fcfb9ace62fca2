"""ABF is RoPE of another base, and is NTK-aware scaling by the factor that its docstring states."""

import numpy as np
import pytest
from rope_reference import geometric

from lengthen.core import Shape, build
from lengthen.methods.ntk import NTKAware


@pytest.mark.parametrize(("spec", "base"), [("abf", 500_000.0), ("abf:adjusted=1e6", 1e6)])
def test_the_base_is_the_adjusted_one(spec, base):
    found = build(spec, Shape(head_size=128)).rotation
    np.testing.assert_allclose(found.inv_freq, geometric(base, 128), rtol=1e-14)
    assert found.rule.logit_multiplier == 1.0


def test_partial_and_halves():
    found = build("abf:fraction=0.25,interleaved=false", Shape(head_size=64)).rotation
    assert (found.size, found.interleaved) == (16, False)


@pytest.mark.parametrize("dim", [4, 64])
def test_it_is_ntk_aware_scaling_by_the_ratio_of_bases_to_a_power(dim):
    factor = (500_000.0 / 10_000.0) ** ((dim - 2) / dim)
    np.testing.assert_allclose(NTKAware(factor).inv_freq(dim), geometric(500_000.0, dim), rtol=1e-12)
