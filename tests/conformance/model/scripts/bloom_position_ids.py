"""BLOOM takes position_ids without an error: how far the logits move when all distances are tripled.
Subject: transformers BLOOM; check: positions_read; right: 0
"""

import torch
from transformers import BloomConfig, BloomForCausalLM

torch.manual_seed(0)
config = BloomConfig(vocab_size=99, hidden_size=64, n_layer=2, n_head=4, initializer_range=0.2)
model, ids = BloomForCausalLM(config).eval(), torch.randint(0, 99, (1, 24))
places, mask = torch.arange(24)[None], torch.ones_like(ids)
with torch.no_grad():
    near, far = (model(ids, attention_mask=mask, position_ids=p).logits for p in (places, 3 * places))
print(float((near - far).abs().max() == 0))
