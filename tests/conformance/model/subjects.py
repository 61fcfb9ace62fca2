"""Tiny random models of transformers, and which checks each fails in release 5.24."""

from collections.abc import Callable

import transformers as tf
from torch import nn

from lengthen.conformance.model.tiny import tiny_model

ROPE = {"rope_theta": 10_000.0}
HALF_LONG = [1.0, 1.1, 1.3, 1.6, 2.0, 2.5, 3.2, 4.0]
LONGROPE = {"rope_type": "longrope", **ROPE, "short_factor": [1.0] * 8, "long_factor": HALF_LONG}
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}


def llama(**given) -> nn.Module:
    """With two key/value heads, and `given` settings."""
    return tiny_model(tf.LlamaConfig(**{**SIZES, "num_key_value_heads": 2, "max_position_embeddings": 48, **given}))


def of(kind: str, **given) -> Callable[[], nn.Module]:
    """A tiny model of the default config of a model type, changed by `given`."""
    return lambda: tiny_model(tf.AutoConfig.for_model(kind, **given))


def gemma3_yarn() -> nn.Module:
    yarn = {"rope_type": "yarn", **ROPE, "factor": 8.0, "original_max_position_embeddings": 4096, "truncate": False}
    ropes = {"full_attention": yarn, "sliding_attention": {"rope_type": "default", **ROPE}}
    return tiny_model(tf.Gemma3TextConfig(rope_parameters=ropes, max_position_embeddings=32_768))


SUBJECTS: dict[str, Callable[[], nn.Module]] = {
    "transformers Llama": llama,
    "transformers Llama, dynamic NTK": lambda: llama(rope_parameters={"rope_type": "dynamic", **ROPE, "factor": 4.0}),
    "transformers Llama, YaRN": lambda: llama(
        max_position_embeddings=192,
        rope_parameters={"rope_type": "yarn", **ROPE, "factor": 4.0, "original_max_position_embeddings": 48},
    ),
    "transformers Llama, LongRoPE": lambda: llama(
        max_position_embeddings=192,
        rope_parameters={**LONGROPE, "factor": 4.0, "original_max_position_embeddings": 48},
    ),
    "transformers Phi-3, LongRoPE": lambda: tiny_model(
        tf.Phi3Config(
            **SIZES,
            rope_parameters=dict(LONGROPE),
            max_position_embeddings=192,
            original_max_position_embeddings=48,
            pad_token_id=0,
        )
    ),
    "transformers Mistral": of("mistral", max_position_embeddings=1024, sliding_window=256),
    "transformers Qwen2": of("qwen2"),
    "transformers Qwen3": of("qwen3"),
    "transformers Gemma": of("gemma"),
    "transformers Gemma 3": of("gemma3_text"),
    "transformers Gemma 3, YaRN on full layers": gemma3_yarn,
    "transformers SmolLM3": of("smollm3"),
    "transformers GPT-NeoX": of(
        "gpt_neox", head_dim=64, rope_parameters={"rope_type": "default", **ROPE, "partial_rotary_factor": 0.5}
    ),
    "transformers GPT-2": of("gpt2"),
    "transformers BLOOM": of("bloom"),
    "transformers MPT": of("mpt"),
    "transformers Falcon, ALiBi": of("falcon", alibi=True),
    "transformers T5": of("t5"),
}
PACKING = {"packed_ones_mask", "packed_defaults", "position_gaps"}
"""Borders of documents are inferred from positions: only without mask and cache, and wherever one is skipped."""
CONVERTED = {"bfloat16", "float16", "bfloat16_long", "rotary_table_converted"}
"""Frequencies are a buffer, which `.bfloat16()` and `.half()` round. How much that shows depends on the frequencies."""
IGNORED = {"packed", "packed_ones_mask", "packed_defaults", "positions_read"}
"""Positions are accepted and ignored."""
SWITCHING = {"cached_switch", "prefix", "batch_mates", "generate", "generate_batch"}
"""One frequency set for a batch and for what is cached, chosen by the longest row so far."""
KNOWN = {
    "transformers Llama, dynamic NTK": PACKING | CONVERTED | SWITCHING | {"earlier_requests"},
    "transformers Llama, LongRoPE": PACKING | CONVERTED | SWITCHING,
    "transformers Phi-3, LongRoPE": PACKING | CONVERTED | SWITCHING - {"generate"},
    "transformers Gemma 3, YaRN on full layers": PACKING | CONVERTED | {"frequencies", "settings_run"},
    "transformers GPT-2": PACKING | {"left_padding", "left_padding_cached"},
    "transformers BLOOM": IGNORED | {"alibi_bias_bfloat16", "bfloat16_long"},
    "transformers MPT": IGNORED,
    "transformers Falcon, ALiBi": IGNORED | {"position_gaps", "alibi_bias", "alibi_bias_bfloat16", "bfloat16_long"},
    "transformers T5": set(),
}
"""Subject -> what may fail; of a subject that is not listed, what every rotary model of transformers fails."""
EVERY_ROTARY = PACKING | CONVERTED
