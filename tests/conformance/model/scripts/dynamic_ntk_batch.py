"""Llama with dynamic NTK scaling: a row of 50 tokens, alone and beside a row of 100 tokens.
Subject: transformers Llama, dynamic NTK; check: batch_mates; right: 0.001
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}
config = LlamaConfig(**sizes, max_position_embeddings=64, initializer_range=0.2, rope_parameters=rope)
model, ids = LlamaForCausalLM(config).eval(), torch.randint(0, 99, (2, 100))
mask = torch.ones_like(ids)
mask[0, 50:] = 0
with torch.no_grad():
    alone, beside = model(ids[:1, :50]).logits, model(ids, attention_mask=mask).logits[:1, :50]
print((alone - beside).abs().max().item())
