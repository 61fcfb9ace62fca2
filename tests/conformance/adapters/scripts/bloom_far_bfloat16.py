"""transformers: BLOOM after `.bfloat16()` loses several times more at token 1000 than near the start.
Subject: transformers BLOOM; check: bfloat16_long; right: 2.5
"""

import copy

import torch
from transformers import BloomConfig, BloomForCausalLM

torch.manual_seed(0)
model = BloomForCausalLM(BloomConfig(vocab_size=99, hidden_size=64, n_layer=2, n_head=4, initializer_range=0.2)).eval()
for p in model.parameters():
    p.data = p.data.bfloat16().float()
ids = torch.randint(0, 99, (1, 1200))
with torch.no_grad():
    error = (copy.deepcopy(model).bfloat16()(ids).logits.float() - model(ids).logits).abs().mean(-1)[0]
print((error[-300:].mean() / error[:150].mean()).item())
