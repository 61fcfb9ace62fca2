"""Tiny random checkpoints of many families, and what is asked of them."""

from collections.abc import Callable

import torch
import transformers as tf
from torch import Tensor
from transformers import PreTrainedModel

VOCAB, TRAINED = 97, 32
COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": TRAINED,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}


def make(config: type, model: type, **sizes) -> PreTrainedModel:
    """Random weights, always the same; attention is peaked enough that positions matter."""
    torch.manual_seed(0)
    return model(config(**{**COMMON, **sizes})).eval()


def llama(**sizes) -> PreTrainedModel:
    return make(tf.LlamaConfig, tf.LlamaForCausalLM, **sizes)


FAMILIES: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": llama,
    "mistral": lambda: make(tf.MistralConfig, tf.MistralForCausalLM, sliding_window=16),
    "qwen2": lambda: make(tf.Qwen2Config, tf.Qwen2ForCausalLM, use_sliding_window=True, sliding_window=16, max_window_layers=1),
    "qwen3": lambda: make(tf.Qwen3Config, tf.Qwen3ForCausalLM, head_dim=32),
    "phi3": lambda: make(tf.Phi3Config, tf.Phi3ForCausalLM),
    "olmo2": lambda: make(tf.Olmo2Config, tf.Olmo2ForCausalLM),
    "smollm3": lambda: make(tf.SmolLM3Config, tf.SmolLM3ForCausalLM, num_hidden_layers=4, no_rope_layers=[1, 0, 1, 0]),
    "gpt_neox": lambda: make(tf.GPTNeoXConfig, tf.GPTNeoXForCausalLM),
    "stablelm": lambda: make(tf.StableLmConfig, tf.StableLmForCausalLM),
    "cohere": lambda: make(tf.CohereConfig, tf.CohereForCausalLM),
    "cohere2": lambda: make(tf.Cohere2Config, tf.Cohere2ForCausalLM, num_hidden_layers=4, sliding_window=16),
    "glm": lambda: make(tf.GlmConfig, tf.GlmForCausalLM, head_dim=16),
    "mixtral": lambda: make(tf.MixtralConfig, tf.MixtralForCausalLM, num_local_experts=4),
    "qwen2_moe": lambda: make(
        tf.Qwen2MoeConfig, tf.Qwen2MoeForCausalLM, num_experts=4, moe_intermediate_size=32, shared_expert_intermediate_size=32
    ),
    "gemma": lambda: make(tf.GemmaConfig, tf.GemmaForCausalLM, head_dim=16),
    "gemma3": lambda: make(tf.Gemma3TextConfig, tf.Gemma3ForCausalLM, head_dim=16, sliding_window=16, num_hidden_layers=6),
}
"""Everything that extend() is to take: grouped heads throughout."""


def ids(tokens: int, rows: int = 2, seed: int = 1) -> Tensor:
    return torch.randint(1, VOCAB, (rows, tokens), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def logits(model: PreTrainedModel, tokens: Tensor, **given) -> Tensor:
    return model(tokens, use_cache=False, **given)[0].double()


@torch.no_grad()
def in_chunks(model: PreTrainedModel, tokens: Tensor, chunks: tuple[int, ...], mask: Tensor | None = None) -> Tensor:
    """The same through the model's own cache, some tokens at a time."""
    cache, found, done = None, [], 0
    while done < tokens.shape[1]:
        stop = min(done + chunks[len(found) % len(chunks)], tokens.shape[1])
        given = {} if mask is None else {"attention_mask": mask[:, :stop]}
        out = model(tokens[:, done:stop], cache=cache, use_cache=True, **given)
        cache, done = out.cache, stop
        found.append(out.logits)
    return torch.cat(found, dim=1).double()


def apart(found: Tensor, expected: Tensor) -> float:
    """Largest difference in units of the deviation of the logits."""
    return ((found - expected).abs().max() / expected.std()).item()
