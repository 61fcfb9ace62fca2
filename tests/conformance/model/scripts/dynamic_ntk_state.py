"""Llama with dynamic NTK scaling: a request of 100 tokens, before and after one of 200 tokens was served.
Subject: transformers Llama, dynamic NTK; check: earlier_requests; right: 0.001
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}
config = LlamaConfig(**sizes, max_position_embeddings=64, initializer_range=0.2, rope_parameters=rope)
model, ids = LlamaForCausalLM(config).eval(), torch.randint(0, 99, (1, 200))
with torch.no_grad():
    before, _, after = model(ids[:, :100]).logits, model(ids), model(ids[:, :100]).logits
print((before - after).abs().max().item())
