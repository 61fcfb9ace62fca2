"""Llama with dynamic NTK scaling: logits of the 70th token, from a forward and from a forward that continues a cache.
Subject: transformers Llama, dynamic NTK; check: cached_switch; right: 0.001
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}
config = LlamaConfig(**sizes, max_position_embeddings=64, initializer_range=0.2, rope_parameters=rope)
model, ids = LlamaForCausalLM(config).eval(), torch.randint(0, 99, (1, 70))
with torch.no_grad():
    full = model(ids, use_cache=False).logits
    cached = model(ids[:, 60:], cache=model(ids[:, :60], use_cache=True).cache).logits
print((full[:, -1] - cached[:, -1]).abs().max().item())
