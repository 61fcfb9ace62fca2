"""Llama with LongRoPE: logits of the first 50 tokens, alone and with 50 more tokens behind them.
Subject: transformers Llama, LongRoPE; check: prefix; right: 0.001
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
short, long = [1.0] * 8, [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]
rope = {"rope_type": "longrope", "rope_theta": 1e4, "factor": 4.0, "short_factor": short, "long_factor": long}
sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}
rope["original_max_position_embeddings"] = 64
config = LlamaConfig(**sizes, max_position_embeddings=256, initializer_range=0.2, rope_parameters=rope)
model, ids = LlamaForCausalLM(config).eval(), torch.randint(0, 99, (1, 100))
with torch.no_grad():
    alone, followed = model(ids[:, :50]).logits, model(ids).logits[:, :50]
print((alone - followed).abs().max().item())
