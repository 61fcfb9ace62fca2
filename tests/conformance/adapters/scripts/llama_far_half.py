"""transformers: Llama after `.bfloat16()`, positions 500 tokens apart: the logits against float32 with the same rounded weights.
Subject: transformers Llama; check: bfloat16, float16, bfloat16_long; right: 0.5
"""

import copy

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}
model = LlamaForCausalLM(LlamaConfig(**sizes, initializer_range=0.2)).eval()
for p in model.parameters():
    p.data = p.data.bfloat16().float()
ids, mask, places = torch.randint(0, 99, (1, 32)), torch.ones(1, 32, dtype=torch.long), 500 * torch.arange(32)[None]
with torch.no_grad():
    run = lambda m: m(ids, attention_mask=mask, position_ids=places).logits.float()
    print((run(copy.deepcopy(model).bfloat16()) - run(model)).abs().max().item())
