"""x-transformers: a cached step of five tokens gives logits for one of them, unless the caller also says cache_age=5.
Subject: x-transformers Decoder, rotary; check: cached_chunks; right: 0
"""

import torch
from x_transformers import Decoder, TransformerWrapper

layers = Decoder(dim=64, depth=2, heads=4, attn_dim_head=32, rotary_pos_emb=True, rotary_emb_dim=32)
model = TransformerWrapper(num_tokens=50, max_seq_len=64, attn_layers=layers).eval()
ids = torch.randint(0, 50, (1, 15))
_, cache = model(ids[:, :10], return_intermediates=True)
print(5 - model(ids[:, 10:], cache=cache, input_not_include_cache=True).shape[1])
