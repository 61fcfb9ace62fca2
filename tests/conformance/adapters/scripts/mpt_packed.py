"""transformers: MPT, two documents in one row with position_ids that restart: the second against itself alone.
Subject: transformers MPT; check: packed, packed_ones_mask, packed_defaults, positions_read; right: 0.001
"""

import torch
from transformers import MptConfig, MptForCausalLM

torch.manual_seed(0)
config = MptConfig(vocab_size=99, d_model=64, n_layers=2, n_heads=4, max_seq_len=64, initializer_range=0.2)
model = MptForCausalLM(config).eval()
ids, places = torch.randint(0, 99, (1, 20)), torch.cat((torch.arange(9), torch.arange(11)))[None]
with torch.no_grad():
    row, alone = model(ids, position_ids=places, use_cache=False).logits[:, 9:], model(ids[:, 9:]).logits
print((row - alone).abs().max().item())
