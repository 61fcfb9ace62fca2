"""MPT takes position_ids without an error: how far the logits move when all distances are tripled.
Subject: transformers MPT; check: positions_read; right: 0
"""

import torch
from transformers import MptConfig, MptForCausalLM

torch.manual_seed(0)
config = MptConfig(vocab_size=99, d_model=64, n_layers=2, n_heads=4, max_seq_len=64, initializer_range=0.2)
model, ids = MptForCausalLM(config).eval(), torch.randint(0, 99, (1, 24))
places, mask = torch.arange(24)[None], torch.ones_like(ids)
with torch.no_grad():
    near, far = (model(ids, attention_mask=mask, position_ids=p).logits for p in (places, 3 * places))
print(float((near - far).abs().max() == 0))
