"""Llama with LongRoPE: `generate` from 62 to 70 tokens past the original 64; its last logits, and those of a forward.
Subject: transformers Llama, LongRoPE; check: generate; right: 0.001
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
short, long = [1.0] * 8, [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]
rope = {"rope_type": "longrope", "rope_theta": 1e4, "factor": 4.0, "short_factor": short, "long_factor": long}
sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}
rope["original_max_position_embeddings"] = 64
config = LlamaConfig(**sizes, max_position_embeddings=256, initializer_range=0.2, rope_parameters=rope, eos_token_id=None)
model, ids = LlamaForCausalLM(config).eval(), torch.randint(0, 99, (1, 62))
how = {"max_new_tokens": 8, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
out = model.generate(ids, attention_mask=torch.ones_like(ids), **how)
with torch.no_grad():
    full = model(out.sequences[:, :-1], use_cache=False).logits[:, -1]
print((out.logits[-1] - full).abs().max().item())
