"""Llama without a mask: how far token 20 moves when token 5 changes and positions skip from 9 to 100 in between.
Subject: transformers Llama; check: position_gaps; right: 0
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}
model, ids = LlamaForCausalLM(LlamaConfig(**sizes, initializer_range=0.2)).eval(), torch.randint(0, 99, (1, 24))
other, positions = ids.clone(), torch.cat((torch.arange(10), torch.arange(100, 114)))[None]
other[:, 5] = (ids[:, 5] + 1) % 99
with torch.no_grad():
    first, second = (model(x, position_ids=positions, use_cache=False).logits[:, 20] for x in (ids, other))
moved = (first - second).abs().max().item()
print(float(moved == 0))
