"""transformers: BLOOM, two documents in one row with position_ids that restart: the second against itself alone.
Subject: transformers BLOOM; check: packed, packed_ones_mask, packed_defaults; right: 0.001
"""

import torch
from transformers import BloomConfig, BloomForCausalLM

torch.manual_seed(0)
model = BloomForCausalLM(BloomConfig(vocab_size=99, hidden_size=64, n_layer=2, n_head=4, initializer_range=0.2)).eval()
ids, places = torch.randint(0, 99, (1, 20)), torch.cat((torch.arange(9), torch.arange(11)))[None]
with torch.no_grad():
    row, alone = model(ids, position_ids=places, use_cache=False).logits[:, 9:], model(ids[:, 9:]).logits
print((row - alone).abs().max().item())
