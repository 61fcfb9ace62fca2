"""A method, a factor and a length in every combination."""

import pytest
import torch
from tiny import FAMILIES, TRAINED, ids, llama, logits

from lengthen.core import UsageError, build
from lengthen.hf import extend
from lengthen.hf.asked import with_factor


@pytest.mark.parametrize(
    ("given", "same_as"),
    [
        ({"method": "yarn", "factor": 4}, {"request": "yarn:factor=4"}),
        ({"request": "yarn", "factor": 4.0}, {"request": "yarn:factor=4"}),
        ({"method": "yarn:factor=4", "factor": 4}, {"request": "yarn:factor=4"}),
        ({"method": "yarn:fast=8.0+log_n:clip=true", "factor": 2}, {"request": "yarn:fast=8.0,factor=2+log_n:clip=true"}),
        ({"method": "self_extend:group=4", "factor": 2}, {"request": "self_extend:group=4", "tokens": 2 * TRAINED}),
        ({"method": "dynamic_ntk", "factor": 3}, {"request": "dynamic_ntk", "tokens": 3 * TRAINED}),
    ],
)
def test_a_factor_beside_the_method_means_the_same_as_inside(given, same_as):
    model, x = llama(), ids(60)
    found = []
    for options in (given, same_as):
        with extend(model, **options) as extension:
            found.append((logits(model, x), extension.tokens))
    assert torch.equal(found[0][0], found[1][0]) and found[0][1] == found[1][1]


def test_a_factor_goes_to_the_layer_types_that_are_named():
    model, x = FAMILIES["gemma3"](), ids(60)
    with extend(model, method={"full_attention": "pi", "sliding_attention": None}, factor=4) as extension:
        found = logits(model, x)
        assert extension.tokens == 4 * TRAINED
    with extend(model, {"full_attention": "pi:factor=4"}):
        assert torch.equal(logits(model, x), found)


def test_specs_are_written_with_their_options():
    assert with_factor("yarn", 4.0) == ("yarn:factor=4.0", True)
    assert with_factor("rope:base=1e+06+longrope:long_factor=(1,2)", 2) == (
        "rope:base=1000000.0+longrope:long_factor=(1, 2),factor=2",
        True,
    )
    assert with_factor("window:tokens=16+log_n", 2) == ("window:tokens=16+log_n", False)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "Name one method"),
        ({"request": "yarn", "method": "yarn"}, "Name one method"),
        ({"method": "yarn:factor=2", "factor": 4}, "Give it once"),
        ({"method": "yarn", "factor": 0.5}, "at least 1"),
        ({"method": "yarn", "factor": float("nan")}, "positive, finite"),
        ({"method": "yarn", "factor": "4"}, "positive, finite"),
        ({"method": build("alibi"), "factor": 4}, "a Scheme"),
        ({"method": "yarn", "factor": 4, "tokens": 8 * TRAINED}, "more than the factor"),
    ],
)
def test_what_contradicts_itself_is_refused_and_the_model_untouched(given, reason):
    model, x = llama(), ids(40)
    before = logits(model, x)
    with pytest.raises(UsageError, match=reason):
        extend(model, **given)
    assert torch.equal(logits(model, x), before)
