"""Shrunk configs keep what their rules are about: shares, orders and kinds."""

import pytest
import torch
import transformers as tf

from lengthen.conformance.model.tiny import tiny_config, tiny_model
from lengthen.core.errors import UsageError

KINDS = "llama mistral qwen2 qwen3 phi3 phi gpt_neox gpt2 gptj bloom mpt falcon gemma gemma2 gemma3_text smollm3 olmo2 cohere2"
KINDS += " mixtral deepseek_v3 llama4_text gpt_oss glm4 opt stablelm exaone4"


@pytest.mark.parametrize("kind", KINDS.split())
def test_a_default_config_of_any_family_makes_a_small_model_whose_logits_vary(kind):
    model = tiny_model(tf.AutoConfig.for_model(kind))
    assert sum(p.numel() for p in model.parameters()) < 2_000_000
    with torch.no_grad():
        logits = model(torch.randint(3, 160, (1, 20), generator=torch.Generator().manual_seed(0))).logits
    assert logits.isfinite().all()
    assert logits.std() > 0.1


def test_lengths_shrink_by_one_scale_and_factors_stay():
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32_768}
    small = tiny_config(tf.MistralConfig(max_position_embeddings=131_072, sliding_window=8192, rope_parameters=rope))
    assert small.rope_parameters["original_max_position_embeddings"] == 48
    assert (small.max_position_embeddings, small.sliding_window) == (192, 12)
    assert small.rope_parameters["factor"] == 4.0


def test_heads_keep_their_share_and_rotated_channels_too():
    small = tiny_config(tf.LlamaConfig(hidden_size=4096, num_attention_heads=32, num_key_value_heads=8))
    assert (small.num_attention_heads, small.num_key_value_heads, small.hidden_size) == (4, 1, 64)
    rotary = tiny_model(tf.GPTNeoXConfig(rotary_pct=0.25)).gpt_neox.rotary_emb
    assert len(rotary.inv_freq) == 2


def test_lists_of_factors_are_thinned_out_with_their_ends():
    factors = [1.0 + n for n in range(48)]
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": factors, "long_factor": factors}
    lengths = {"max_position_embeddings": 131_072, "original_max_position_embeddings": 4096}
    small = tiny_config(tf.Phi3Config(rope_parameters=rope, **lengths))
    assert len(small.rope_parameters["long_factor"]) == 8
    assert small.rope_parameters["long_factor"][::7] == [1.0, 48.0]
    assert (small.original_max_position_embeddings, small.max_position_embeddings) == (48, 1536)


def test_every_kind_of_layer_is_left():
    small = tiny_config(tf.AutoConfig.for_model("smollm3"))
    assert 0 in small.no_rope_layers and 1 in small.no_rope_layers
    assert set(tiny_config(tf.Gemma3TextConfig()).layer_types) == {"sliding_attention", "full_attention"}


def test_the_config_that_was_given_stays():
    config = tf.LlamaConfig()
    before = config.to_json_string()
    tiny_model(config)
    assert config.to_json_string() == before


def test_what_cannot_be_shrunk_is_refused():
    with pytest.raises(UsageError, match="no attention heads"):
        tiny_model(tf.AutoConfig.for_model("mamba"))


def test_the_same_seed_makes_the_same_model_and_draws_no_random_numbers():
    state = torch.get_rng_state()
    a, b, c = (tiny_model(tf.LlamaConfig(), seed) for seed in (0, 0, 1))
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(a.lm_head.weight, b.lm_head.weight)
    assert not torch.equal(a.lm_head.weight, c.lm_head.weight)
