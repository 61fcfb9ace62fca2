"""extend() on many families: the checkpoint's own scheme is reproduced beyond its windows, and what is unlike it is refused."""

import pytest
import torch
import transformers as tf
from tiny import COMMON, FAMILIES, apart, ids, in_chunks, logits, make

from lengthen.core import Refusal, UsageError
from lengthen.hf import extend, own_scheme

EXACT = 1e-4
"""Units of the deviation of the logits."""
TWO_SPECTRA = ("full_attention", "sliding_attention")


def own(name, model):
    """A request that changes nothing."""
    return {t: own_scheme(model, layer_type=t) for t in TWO_SPECTRA} if name == "gemma3" else own_scheme(model)


def remapped(name, spec):
    return {"full_attention": spec} if name == "gemma3" else spec


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("route", ["rotary", "turned", "raw"])
def test_its_own_scheme_gives_its_own_logits_beyond_its_sliding_window(name, route):
    model, x = FAMILIES[name](), ids(60)
    mask = torch.ones_like(x)
    mask[1, :13] = 0
    whole, padded = logits(model, x), logits(model, x, attention_mask=mask)[1, 13:]
    with extend(model, own(name, model), route=route) as extension:
        assert extension.route == route
        assert apart(logits(model, x), whole) < EXACT
        assert apart(in_chunks(model, x, (20, 1, 7)), whole) < EXACT
        assert apart(logits(model, x, attention_mask=mask)[1, 13:], padded) < EXACT
        assert apart(in_chunks(model, x, (20, 1, 7), mask)[1, 13:], padded) < EXACT
    assert torch.equal(logits(model, x), whole)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("spec", ["self_extend:window=7,group=3", "dual_chunk:chunk=9,local=4"])
def test_remapping_through_the_cache_and_padded(name, spec):
    model, x = FAMILIES[name](), ids(50)
    before = logits(model, x)
    extend(model, remapped(name, spec))
    whole = logits(model, x)
    assert apart(whole[:, :7], before[:, :7]) < EXACT
    assert apart(whole, before) > 0.05
    assert apart(in_chunks(model, x, (5, 1, 7)), whole) < EXACT
    mask = torch.ones_like(x)
    mask[1, :13] = 0
    alone = logits(model, x[1:, 13:])[0]
    assert apart(in_chunks(model, x, (20, 1, 7), mask)[1, 13:], alone) < EXACT


@pytest.mark.parametrize("name", FAMILIES)
def test_packed_documents_equal_themselves_alone(name):
    model, x = FAMILIES[name](), ids(50, rows=1)
    doc = (torch.arange(50) >= 23).long()[None]
    with extend(model, own(name, model), route="turned"):
        found = logits(model, x, doc=doc)[0]
        assert apart(found[:23], logits(model, x[:, :23])[0]) < EXACT
        assert apart(found[23:], logits(model, x[:, 23:])[0]) < EXACT
    with extend(model, own(name, model)), pytest.raises(Refusal, match="route='turned' to keep packed documents apart"):
        logits(model, x, doc=doc)


def test_layers_without_positions_stay_without():
    """All positions moved by a constant factor changes SmolLM3 only through the layers that turn."""
    model = make(tf.SmolLM3Config, tf.SmolLM3ForCausalLM, num_hidden_layers=2, no_rope_layers=[0, 0])
    with pytest.raises(Refusal, match="No attention of SmolLM3ForCausalLM turns its queries"):
        extend(model, "self_extend")
    model = FAMILIES["smollm3"]()
    extension = extend(model, "lm_infinite:sinks=1,window=4,limit=4")
    assert (extension.layers, extension.turned) == (4, 2)
    x = ids(40)
    carried = [layer.self_attn.__dict__["lengthen"].scheme for layer in model.model.layers]
    assert [bool(s.branches) for s in carried] == [True, False, True, False]
    y = x.clone()
    y[:, 20] = x[:, 21]
    assert apart(logits(model, y)[:, 39], logits(model, x)[:, 39]) > 1e-3


def test_partial_rotary_takes_the_size_of_the_checkpoint():
    model = FAMILIES["gpt_neox"]()
    scheme = own_scheme(model)
    assert scheme.rotation.size == 4
    assert scheme.rotation.inv_freq == pytest.approx([1.0, 10_000.0**-0.5], rel=1e-6)


def test_two_spectra_must_be_named():
    model = FAMILIES["gemma3"]()
    with pytest.raises(UsageError, match=r"'sliding_attention' and 'full_attention'\. Say which are to change"):
        extend(model, "self_extend")
    with pytest.raises(UsageError, match=r"no layer type .* named 'full'\. Known: full_attention, sliding_attention"):
        extend(model, {"full": "self_extend"})
    with pytest.raises(UsageError, match="belong to the layer types 'sliding_attention', 'full_attention', got None"):
        own_scheme(model)
    extension = extend(model, {"full_attention": "rope:base=5e6"})
    assert extension.schemes["full_attention"].rotation.inv_freq[1] == pytest.approx(5e6 ** (-2 / 16))
    assert extension.schemes["sliding_attention"].rotation.inv_freq[1] == pytest.approx(1e4 ** (-2 / 16), rel=1e-6)
    assert model.config.rope_parameters["sliding_attention"] == {"rope_type": "default", "rope_theta": 1e4}


DEEPSEEK = {"num_key_value_heads": 4, "first_k_dense_replace": 2}
STRANGERS = {
    "soft caps": (lambda: make(tf.Gemma2Config, tf.Gemma2ForCausalLM, head_dim=16), "caps its logits"),
    "contradictory lengths": (
        lambda: make(tf.GptOssConfig, tf.GptOssForCausalLM, head_dim=16),
        "4096 tokens is above .* of 32",
    ),
    "sinks": (
        lambda: make(tf.GptOssConfig, tf.GptOssForCausalLM, head_dim=16, max_position_embeddings=131072),
        "does not give cosines and sines",
    ),
    "complex tables": (lambda: make(tf.Llama4TextConfig, tf.Llama4ForCausalLM, head_dim=16), "cosines and sines"),
    "latent attention": (lambda: make(tf.DeepseekV3Config, tf.DeepseekV3ForCausalLM, **DEEPSEEK), "latent attention"),
    "no interface": (lambda: make(tf.FalconConfig, tf.FalconForCausalLM), "AttentionInterface"),
    "no rotary module": (lambda: make(tf.GPT2Config, tf.GPT2LMHeadModel), "no rotary module"),
    "a rotary encoder": (lambda: make(tf.ModernBertConfig, tf.ModernBertForMaskedLM), "neither causal nor a causal sliding"),
    "not a model": (lambda: torch.nn.Linear(2, 2), "takes a model of transformers, got Linear"),
}


@pytest.mark.parametrize("what", STRANGERS)
@pytest.mark.parametrize("spec", ["rope", "self_extend:window=7,group=3"])
def test_what_cannot_be_reproduced_is_refused_and_left_alone(what, spec):
    build, message = STRANGERS[what]
    model = build()
    config = model.config.to_dict() if what != "not a model" else None
    modules = {name: id(m) for name, m in model.named_modules()}
    with pytest.raises((Refusal, UsageError), match=message):
        extend(model, spec)
    assert {name: id(m) for name, m in model.named_modules()} == modules
    assert config is None or model.config.to_dict() == config


class Warped(tf.models.llama.modeling_llama.LlamaRotaryEmbedding):
    """Its tables are those of its frequencies for the first few positions only."""

    def forward(self, x, position_ids):
        return super().forward(x, torch.where(position_ids < 8, position_ids, position_ids * 2))


def test_the_probe_finds_a_model_that_does_something_else_to_positions():
    model = FAMILIES["llama"]()
    model.model.rotary_emb = Warped(model.config)
    before = logits(model, ids(30))
    with pytest.raises(Refusal, match=r"under its own frequencies, our way gives logits that are \d.*the model is untouched"):
        extend(model, "self_extend:window=7,group=3")
    assert torch.equal(logits(model, ids(30)), before)
    assert isinstance(model.model.rotary_emb, Warped)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_is_as_near_to_float32_as_the_model_itself(kind):
    model, x = make(tf.LlamaConfig, tf.LlamaForCausalLM, initializer_range=0.06), ids(60)
    exact = logits(model, x)
    error = apart(logits(model.to(kind), x), exact)
    for route in ("rotary", "turned", "raw"):
        with extend(model, own_scheme(model), route=route):
            assert apart(logits(model, x), exact) < 2 * error


def test_a_model_too_noisy_to_prove_anything_on_is_refused():
    model = make(tf.LlamaConfig, tf.LlamaForCausalLM, num_hidden_layers=12, hidden_size=128).bfloat16()
    with pytest.raises(Refusal, match=r"Load it in float32 to extend it, and cast it afterwards\."):
        extend(model, "rope")


def test_the_base_model_and_classifiers_can_be_extended_too():
    torch.manual_seed(0)
    model = tf.LlamaModel(tf.LlamaConfig(**COMMON)).eval()
    x = ids(30)
    with torch.no_grad():
        before = model(x)[0]
        with extend(model, own_scheme(model), route="raw"):
            assert apart(model(x)[0].double(), before.double()) < EXACT
