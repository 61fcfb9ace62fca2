"""What a configuration declares, beside the tables of the model that transformers builds from it."""

import copy

import numpy as np
import pytest
import torch
import transformers as tf
from tiny import COMMON, FAMILIES, make
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from lengthen.core import Refusal, UsageError
from lengthen.hf import families
from lengthen.hf.spectrum import declared
from lengthen.hf.survey import survey

SCALED = {"factor": 4.0, "original_max_position_embeddings": 32}
LISTS = {"short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7], "long_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5]}
ENDS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
ROPES = {
    "default": {"rope_type": "default"},
    "base": {"rope_type": "default", "rope_theta": 5e5},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "legacy": {"type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "yarn": {"rope_type": "yarn", **SCALED},
    "yarn without a factor": {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 8},
    "yarn without a length": {"rope_type": "yarn", "factor": 4.0},
    "yarn, all of it": {
        "rope_type": "yarn",
        **SCALED,
        "beta_fast": 3.0,
        "beta_slow": 0.5,
        "truncate": False,
        "rope_theta": 5e5,
    },
    "yarn, DeepSeek's weights": {"rope_type": "yarn", **SCALED, "mscale": 0.707, "mscale_all_dim": 1.0},
    "yarn, one weight": {"rope_type": "yarn", **SCALED, "mscale_all_dim": 1.0},
    "yarn, given": {"rope_type": "yarn", **SCALED, "attention_factor": 1.25, "mscale": 0.707, "mscale_all_dim": 1.0},
    "longrope": {"rope_type": "longrope", **SCALED, **LISTS},
    "longrope without a factor": {"rope_type": "longrope", "original_max_position_embeddings": 8, **LISTS},
    "longrope, given": {"rope_type": "longrope", **SCALED, **LISTS, "attention_factor": 1.25},
    "llama3": {"rope_type": "llama3", **SCALED, **ENDS, "rope_theta": 5e5},
    "proportional": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1e4},
    "proportional and linear": {"rope_type": "proportional", "partial_rotary_factor": 0.75, "factor": 8.0, "rope_theta": 1e4},
    "partial": {"rope_type": "yarn", **SCALED, "partial_rotary_factor": 0.5},
}


def tables(model) -> dict[str | None, tuple[np.ndarray, float]]:
    """Inverse frequencies and scale of a model's own rotary module, by layer type."""
    module = next(m for m in model.modules() if any(n.endswith("inv_freq") for n, _ in m.named_buffers(recurse=False)))
    names = [n for n, _ in module.named_buffers(recurse=False) if n.endswith("inv_freq") and "original" not in n]
    kind = lambda name: name.removesuffix("inv_freq").rstrip("_") or None
    scale = lambda name: getattr(module, name.removesuffix("inv_freq") + "attention_scaling", 1.0)
    return {kind(n): (getattr(module, n).double().numpy(), float(scale(n))) for n in names}


def require_equal(model, rtol: float = 3e-6) -> None:
    """Every spectrum that is declared is the model's own, which is computed in float32."""
    own, found = tables(model), declared(model.config)
    assert found.keys() == own.keys()
    for kind, (inv_freq, scale) in own.items():
        np.testing.assert_allclose(found[kind].inv_freq(), inv_freq, rtol=rtol, atol=1e-7)
        assert found[kind].settled().mscale == pytest.approx(scale, rel=1e-6)


def llama(rope: dict, **sizes) -> tf.PreTrainedModel:
    return make(tf.LlamaConfig, tf.LlamaForCausalLM, rope_parameters=copy.deepcopy(rope), **sizes)


@pytest.mark.parametrize("what", ROPES)
def test_every_kind_of_scaling_on_llama(what):
    model = llama(ROPES[what])
    before = model.config.to_dict()
    require_equal(model)
    assert model.config.to_dict() == before


@pytest.mark.parametrize("what", [k for k in ROPES if k not in ("legacy", "yarn without a length", "proportional", "partial")])
def test_a_config_json_with_legacy_names(what):
    """rope_scaling and rope_theta at the top, as before transformers 5."""
    rope = dict(ROPES[what])
    theta = rope.pop("rope_theta", 10_000.0)
    rope["type"] = rope.pop("rope_type").replace("longrope", "su")
    legacy = {**COMMON, "model_type": "llama", "rope_scaling": rope, "rope_theta": theta}
    expected = declared(llama(ROPES[what]).config)[None]
    found = declared(legacy)[None]
    np.testing.assert_allclose(found.inv_freq(), expected.inv_freq(), rtol=1e-15)
    assert (found.kind, found.logit_multiplier(), found.lengths) == (
        expected.kind,
        expected.logit_multiplier(),
        expected.lengths,
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_tables_layers_size_and_pairing_are_those_of_the_running_model(name):
    model = FAMILIES[name]()
    require_equal(model)
    seen, found = survey(model), declared(model.config)
    assert set(found) == set(seen.types)
    for kind, spectrum in found.items():
        assert spectrum.layers == tuple(n for n, layer in enumerate(seen.layers) if layer.turned and layer.layer_type == kind)
        assert (spectrum.size, spectrum.interleaved) == (seen.channels, seen.pairing.interleaved)
        assert spectrum.head_size == seen.layers[0].size


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MORE = {
    "qwen2_moe": (tf.Qwen2MoeForCausalLM, {**EXPERTS, "shared_expert_intermediate_size": 32, "use_sliding_window": True}),
    "qwen3_moe": (tf.Qwen3MoeForCausalLM, {**EXPERTS, "head_dim": 16}),
    "phi": (tf.PhiForCausalLM, {}),
    "gemma": (tf.GemmaForCausalLM, {"head_dim": 16}),
    "olmo": (tf.OlmoForCausalLM, {}),
    "olmo3": (tf.Olmo3ForCausalLM, {"num_hidden_layers": 4}),
    "granite": (tf.GraniteForCausalLM, {}),
    "starcoder2": (tf.Starcoder2ForCausalLM, {}),
    "nemotron": (tf.NemotronForCausalLM, {"head_dim": 16}),
    "ministral": (tf.MinistralForCausalLM, {"head_dim": 16}),
    "seed_oss": (tf.SeedOssForCausalLM, {"head_dim": 16}),
    "arcee": (tf.ArceeForCausalLM, {"head_dim": 16}),
    "apertus": (tf.ApertusForCausalLM, {"max_position_embeddings": 65_536}),
    "glm4": (tf.Glm4ForCausalLM, {"head_dim": 16}),
    "ernie4_5": (tf.Ernie4_5ForCausalLM, {"head_dim": 16}),
    "helium": (tf.HeliumForCausalLM, {"head_dim": 16}),
    "exaone4": (tf.Exaone4ForCausalLM, {"num_hidden_layers": 4, "sliding_window": 16, "sliding_window_pattern": 4}),
}
"""Families beside those of `tiny`: the class that runs them, and sizes."""


@pytest.mark.parametrize("name", MORE)
def test_more_families_as_they_run(name):
    cls, sizes = MORE[name]
    model = make(CONFIG_MAPPING[name], cls, **sizes)
    require_equal(model)
    seen, found = survey(model), declared(model.config)
    spectrum = next(iter(found.values()))
    assert (spectrum.size, spectrum.interleaved) == (seen.channels, seen.pairing.interleaved)
    turned = sorted(n for s in found.values() for n in s.layers)
    assert turned == [n for n, layer in enumerate(seen.layers) if layer.turned]


def test_gpt_oss_and_gemma2_whose_attention_cannot_be_surveyed():
    require_equal(
        make(tf.GptOssConfig, tf.GptOssForCausalLM, head_dim=16, num_local_experts=4, max_position_embeddings=131_072)
    )
    require_equal(make(tf.Gemma2Config, tf.Gemma2ForCausalLM, head_dim=16))


def test_phi3_has_its_trained_length_beside_rope_parameters_and_two_sets():
    rope = {"type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 4.0], "rope_theta": 1e4}
    sizes = {"partial_rotary_factor": 0.25, "original_max_position_embeddings": 8, "max_position_embeddings": 64}
    model = make(tf.Phi3Config, tf.Phi3ForCausalLM, rope_scaling=rope, **sizes)
    require_equal(model)
    spectrum = declared(model.config)[None]
    assert (spectrum.size, spectrum.head_size, spectrum.lengths.original, spectrum.lengths.factor) == (4, 16, 8, 8.0)
    np.testing.assert_allclose(spectrum.inv_freq(8), [1.0, 0.01 / 1.5], rtol=1e-14)
    np.testing.assert_allclose(spectrum.inv_freq(9), [0.5, 0.01 / 4], rtol=1e-14)
    assert spectrum.logit_multiplier(9) == pytest.approx(1 + np.log(8) / np.log(8))


def test_per_layer_types_have_parameters_of_their_own():
    rope = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    sizes = {"head_dim": 16, "sliding_window": 16, "num_hidden_layers": 6, "rope_parameters": rope}
    model = make(tf.Gemma3TextConfig, tf.Gemma3ForCausalLM, **sizes)
    require_equal(model)
    found = declared(model.config)
    assert found["full_attention"].layers == (5,) and found["sliding_attention"].layers == (0, 1, 2, 3, 4)
    assert found["full_attention"].inv_freq()[1] == pytest.approx(1e6 ** (-1 / 8) / 8, rel=1e-14)
    assert found["sliding_attention"].inv_freq()[1] == pytest.approx(1e4 ** (-1 / 8), rel=1e-14)


NESTED = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "rope_theta": 500.0, "truncate": False}


def olmo3(rope: dict) -> tf.PreTrainedModel:
    plain = {"rope_type": "default", "rope_theta": 500.0}
    rope = {"full_attention": dict(rope), "sliding_attention": plain}
    sizes = {"num_hidden_layers": 4, "hidden_size": 256, "max_position_embeddings": 512}
    return make(tf.Olmo3Config, tf.Olmo3ForCausalLM, **sizes, rope_parameters=rope)


def test_a_nested_truncate_is_read_here_and_passed_over_by_transformers():
    """transformers 5.24 looks for `truncate` beside the layer types, so that of one layer type has no effect."""
    rounded, given = olmo3({**NESTED, "truncate": True}), olmo3(NESTED)
    theirs = tables(given)["full_attention"][0]
    np.testing.assert_array_equal(theirs, tables(rounded)["full_attention"][0])
    low, high = (64 * np.log(128 / (2 * np.pi * r)) / (2 * np.log(500.0)) for r in (32, 1))
    share = np.clip((np.arange(32) - max(low, 0)) / (high - max(low, 0)), 0, 1)
    theta = 500.0 ** (-np.arange(0, 64, 2) / 64)
    ours = declared(given.config)["full_attention"].inv_freq()
    np.testing.assert_allclose(ours, theta / 4 * share + theta * (1 - share), rtol=1e-13)
    assert abs(theirs / ours - 1).max() > 0.01
    require_equal(rounded)


def test_deepseek_multiplies_the_whole_head_once_more():
    rope = {"rope_type": "yarn", **SCALED, "mscale": 1.0, "mscale_all_dim": 1.0}
    sizes = {"num_key_value_heads": 4, "first_k_dense_replace": 2, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8}
    sizes |= {"v_head_dim": 16, "kv_lora_rank": 16, "q_lora_rank": 16, "rope_parameters": rope}
    model = make(tf.DeepseekV3Config, tf.DeepseekV3ForCausalLM, **sizes)
    require_equal(model)
    spectrum = declared(model.config)[None]
    assert (spectrum.size, spectrum.head_size, spectrum.interleaved) == (8, 32, True)
    m = 0.1 * np.log(4) + 1
    assert spectrum.settled().mscale == pytest.approx(1.0)
    assert spectrum.logit_multiplier() == pytest.approx(m**2)
    assert model.model.layers[0].self_attn.scaling * 32**0.5 == pytest.approx(m**2)


def test_llama4_and_ministral3_say_what_else_they_do():
    llama4 = declared(tf.Llama4TextConfig(**COMMON | {"num_hidden_layers": 4}, head_dim=16, no_rope_layers=[1, 1, 1, 0]))[None]
    assert (llama4.layers, llama4.interleaved) == ((0, 1, 2), True)
    assert "attn_scale ln(1 + floor((p + 1) / floor_scale))" in llama4.remark
    config = tf.Ministral3Config(**COMMON | {"max_position_embeddings": 262_144}, head_dim=16)
    found = declared(config)[None]
    assert (found.lengths.factor, found.lengths.original) == (16.0, 16_384)
    assert found.logit_multiplier() == 1.0 and "llama_4_scaling_beta" in found.remark


def test_the_text_model_of_a_larger_one_is_read():
    config = tf.Gemma3Config(text_config=FAMILIES["gemma3"]().config.to_dict())
    assert declared(config).keys() == {"full_attention", "sliding_attention"}


def edited(**changes) -> dict:
    """A configuration that somebody edited after loading it."""
    return {**COMMON, "model_type": "llama", "rope_theta": 1e4, **changes}


WRONG = {
    "unknown type": (edited(model_type="bloom"), Refusal, "model of type 'bloom' turns queries and keys is not known here"),
    "unknown kind": (
        edited(rope_parameters={"rope_type": "mrope"}),
        Refusal,
        r"rotary scaling 'mrope' is not known here\. Known:",
    ),
    "unknown entry": (
        edited(rope_parameters={"rope_type": "yarn", **SCALED, "beta_fats": 32}),
        UsageError,
        r"no entry of rope_parameters for rope_type 'yarn' named 'beta_fats'\. Did you mean 'beta_fast'",
    ),
    "no factor": (edited(rope_parameters={"rope_type": "llama3", **ENDS}), UsageError, "'llama3' lack factor"),
    "no base": (
        {**COMMON, "model_type": "llama", "rope_parameters": {"rope_type": "linear", "factor": 2.0}},
        UsageError,
        "have no rope_theta",
    ),
    "inverse factor": (edited(rope_parameters={"rope_type": "linear", "factor": 0.25}), UsageError, r"at least 1, got 0\.25"),
    "two trained lengths": (
        edited(rope_parameters={"rope_type": "yarn", **SCALED}, original_max_position_embeddings=16),
        UsageError,
        "given twice: 32 in rope_parameters, and 16 beside them",
    ),
    "lists of another size": (
        edited(rope_parameters={"rope_type": "longrope", **SCALED, "short_factor": [1.0], "long_factor": [2.0]}),
        UsageError,
        "16 turned channels are 8 pairs, got 1 factors",
    ),
    "nested and flat": (
        edited(rope_parameters={"full_attention": {"rope_type": "default"}, "truncate": False}),
        UsageError,
        "given by layer type .full_attention., and truncate beside them belongs to none",
    ),
    "alibi": (edited(model_type="llama", alibi=True), Refusal, "has ALiBi and no rotary frequencies"),
    "above the maximum": (
        edited(rope_parameters={"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}),
        UsageError,
        "trained length of 64 tokens is above the maximum of 32",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_refused_with_the_sentence(what):
    config, error, message = WRONG[what]
    with pytest.raises(error, match=message):
        declared(config)


def test_a_base_lost_by_setting_rope_scaling_is_noticed():
    """In transformers 5.24 setting rope_scaling drops rope_theta; the class's default would be another model."""
    config = tf.LlamaConfig(**COMMON, rope_theta=5e5)
    with pytest.warns(FutureWarning, match="rope_scaling"):
        config.rope_scaling = {"rope_type": "linear", "factor": 2.0}
    assert config.rope_parameters["rope_theta"] is None
    with pytest.raises(UsageError, match="have no rope_theta"):
        declared(config)


def test_every_family_is_one_of_transformers():
    assert set(families.FAMILIES) <= set(CONFIG_MAPPING)
    assert torch.equal(
        torch.tensor(families.FAMILIES["smollm3"].turned({"no_rope_layers": [1, 0]})), torch.tensor([True, False])
    )
