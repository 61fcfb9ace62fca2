"""BLOOM, two documents in one row with positions that restart: the second one, packed and alone.
Subject: transformers BLOOM; check: packed; right: 0.001
"""

import torch
from transformers import BloomConfig, BloomForCausalLM

torch.manual_seed(0)
config = BloomConfig(vocab_size=99, hidden_size=64, n_layer=2, n_head=4, initializer_range=0.2)
model, ids = BloomForCausalLM(config).eval(), torch.randint(0, 99, (1, 24))
positions = torch.cat((torch.arange(10), torch.arange(14)))[None]
with torch.no_grad():
    packed = model(ids, position_ids=positions, use_cache=False).logits[:, 10:]
    alone = model(ids[:, 10:], use_cache=False).logits
print((packed - alone).abs().max().item())
