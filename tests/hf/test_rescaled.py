"""A checkpoint extended by a rescaling method gives the logits of transformers' own implementation of it."""

import copy

import pytest
import torch
from tiny import TRAINED, apart, ids, in_chunks, llama, logits

from lengthen.core import UsageError
from lengthen.hf import extend
from lengthen.hf.spectrum import declared

EXACT = 1e-4
"""Units of the deviation of the logits: float32 angles of transformers up to position 120."""
LONG = 120
SCALED = {"factor": 4.0, "original_max_position_embeddings": TRAINED}
LISTS = {"short_factor": [1.0] * 8, "long_factor": [1.0, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]}
NATIVE = {
    "pi:factor=4": {"rope_type": "linear", "factor": 4.0},
    "yarn:factor=4": {"rope_type": "yarn", **SCALED},
    "yarn:factor=4,truncate=false,fast=8.0,slow=0.5": {
        "rope_type": "yarn",
        **SCALED,
        "truncate": False,
        "beta_fast": 8.0,
        "beta_slow": 0.5,
    },
    "yarn:factor=4,mscale=2.0,mscale_all_dim=1.0": {"rope_type": "yarn", **SCALED, "mscale": 2.0, "mscale_all_dim": 1.0},
    "llama3:factor=4.0": {"rope_type": "llama3", **SCALED, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "abf:adjusted=5e5": {"rope_type": "default", "rope_theta": 5e5},
    "ntk:factor=4": {"rope_type": "default", "rope_theta": 10_000.0 * 4 ** (16 / 14)},
    "longrope:factor=4,long_factor=(1,1,1.5,2,2.5,3,3.5,4)": {"rope_type": "longrope", **SCALED, **LISTS},
    "dynamic_ntk:growth=2.0,factor=3.75": {"rope_type": "dynamic", "factor": 2.0},
}
"""Our spec, and the rope_parameters that mean the same; the dynamic one is settled for 120 tokens."""


@pytest.mark.parametrize("spec", NATIVE)
def test_the_logits_are_those_of_transformers_and_of_every_cut_into_chunks(spec):
    model, x = llama(), ids(LONG)
    native = llama(rope_parameters={"rope_theta": 10_000.0} | copy.deepcopy(NATIVE[spec]))
    native.load_state_dict(model.state_dict())
    expected = logits(native, x)
    with extend(model, spec, tokens=LONG):
        assert apart(logits(model, x), expected) < EXACT
        # Rules are settled before the first token: nothing depends on how many follow.
        assert apart(in_chunks(model, x, (1, 7, 5)), expected) < EXACT
        assert apart(logits(model, x[:, :TRAINED]), expected[:, :TRAINED]) < EXACT


@pytest.mark.parametrize("spec", ["pi", "ntk", "ntk_by_parts", "yarn", "longrope", "llama3", "dynamic_ntk", "resonance"])
def test_a_length_gives_the_factor(spec):
    model, x = llama(), ids(LONG)
    with extend(model, spec, tokens=4 * TRAINED) as by_length:
        first = logits(model, x)
        assert by_length.tokens == 4 * TRAINED
    with extend(model, f"{spec}:factor=4.0") as by_factor:
        assert torch.equal(logits(model, x), first)
        assert by_factor.tokens == 4 * TRAINED


def test_the_softmax_scale_reaches_the_whole_head_through_any_chunks():
    model, x = llama(), ids(60)
    m = declared(llama(rope_parameters={"rope_type": "yarn", **SCALED}).config)[None].settled().mscale
    native = llama(rope_parameters={"rope_type": "yarn", "rope_theta": 10_000.0, **SCALED, "attention_factor": 1.0})
    for layer in native.model.layers:
        layer.self_attn.scaling *= m**2
    with extend(model, "yarn:factor=4,mscale=1.0,mscale_all_dim=1.0,deepseek=true"):
        assert apart(logits(model, x), logits(native, x)) < EXACT
        assert apart(in_chunks(model, x, (20, 1, 7)), logits(native, x)) < EXACT


def test_a_factor_below_one_leaves_the_model_untouched():
    model, x = llama(), ids(20)
    before = logits(model, x)
    with pytest.raises(UsageError, match=r"at least 1, got 0\.25"):
        extend(model, "yarn:factor=0.25")
    assert torch.equal(logits(model, x), before)
