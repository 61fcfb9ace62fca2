"""Llama after `.bfloat16()`: how far a token moves the one 16,000 positions behind it, against float32 with the same weights.
Subject: transformers Llama; check: bfloat16; right: 0.3
"""

import copy

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}
model, ids = LlamaForCausalLM(LlamaConfig(**sizes, initializer_range=0.2)).eval(), torch.randint(0, 99, (1, 32))
for p in model.parameters():
    p.data = p.data.bfloat16().float()
positions, mask = 500 * torch.arange(32)[None], torch.ones_like(ids)
with torch.no_grad():
    right = model(ids, attention_mask=mask, position_ids=positions).logits
    found = copy.deepcopy(model).bfloat16()(ids, attention_mask=mask, position_ids=positions).logits
print(((found - right).abs().max() / right.std()).item())
