"""x-transformers: with cache_age=5 a cached step of five tokens gives the logits of one forward.
Subject: x-transformers Decoder, rotary, cache_age; check: cached_chunks; right: 0.0001
"""

import torch
from x_transformers import Decoder, TransformerWrapper

torch.manual_seed(0)
layers = Decoder(dim=64, depth=2, heads=4, attn_dim_head=32, rotary_pos_emb=True, rotary_emb_dim=32)
model = TransformerWrapper(num_tokens=50, max_seq_len=64, attn_layers=layers).eval()
ids = torch.randint(0, 50, (1, 15))
full, (_, cache) = model(ids), model(ids[:, :10], return_intermediates=True)
print((model(ids[:, 10:], cache=cache, input_not_include_cache=True, cache_age=5) - full[:, 10:]).abs().max().item())
