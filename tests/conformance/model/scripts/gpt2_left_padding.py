"""GPT-2 with a mask and no position_ids: logits of a row padded on the left by 13 tokens, and of the row alone.
Subject: transformers GPT-2; check: left_padding; right: 0.001
"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(vocab_size=99, n_embd=64, n_layer=2, n_head=4, n_positions=64, initializer_range=0.2)
model, ids, mask = GPT2LMHeadModel(config).eval(), torch.randint(0, 99, (1, 37)), torch.ones(1, 37, dtype=torch.long)
mask[:, :13] = 0
with torch.no_grad():
    padded, alone = model(ids, attention_mask=mask).logits[:, 13:], model(ids[:, 13:]).logits
print((padded - alone).abs().max().item())
