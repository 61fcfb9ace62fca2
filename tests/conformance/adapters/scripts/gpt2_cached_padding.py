"""transformers: GPT-2, a row padded on the left with a mask, one cached step, against the row alone.
Subject: transformers GPT-2; check: left_padding_cached; right: 0.001
"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=99, n_embd=64, n_layer=2, n_head=4, initializer_range=0.2)).eval()
ids, pad = torch.randint(0, 99, (1, 12)), torch.zeros(1, 5, dtype=torch.long)
padded, mask = torch.cat((pad, ids), 1), torch.cat((pad, torch.ones_like(ids)), 1)
with torch.no_grad():
    cache = model(padded[:, :-1], attention_mask=mask[:, :-1], use_cache=True).past_key_values
    step = model(padded[:, -1:], attention_mask=mask, cache=cache, use_cache=True).logits
    print((step[:, -1] - model(ids).logits[:, -1]).abs().max().item())
