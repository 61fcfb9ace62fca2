"""Falcon with ALiBi takes position_ids without an error: how far the logits move when all distances are tripled.
Subject: transformers Falcon, ALiBi; check: positions_read; right: 0
"""

import torch
from transformers import FalconConfig, FalconForCausalLM

torch.manual_seed(0)
sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}
config = FalconConfig(**sizes, alibi=True, initializer_range=0.2)
model, ids = FalconForCausalLM(config).eval(), torch.randint(0, 99, (1, 24))
places, mask = torch.arange(24)[None], torch.ones_like(ids)
with torch.no_grad():
    near, far = (model(ids, attention_mask=mask, position_ids=p).logits for p in (places, 3 * places))
print(float((near - far).abs().max() == 0))
