"""x-transformers: data-dependent ALiBi raises at a cached step of five tokens with cache_age=5.
Subject: x-transformers Decoder, data-dependent ALiBi, cache_age; check: cached_chunks; right: 0
"""

import torch
from x_transformers import Decoder, TransformerWrapper

layers = Decoder(dim=64, depth=2, heads=4, attn_data_dependent_alibi=True)
model = TransformerWrapper(num_tokens=50, max_seq_len=64, use_abs_pos_emb=False, attn_layers=layers).eval()
ids = torch.randint(0, 50, (1, 15))
_, cache = model(ids[:, :10], return_intermediates=True)
try:
    model(ids[:, 10:], cache=cache, input_not_include_cache=True, cache_age=5)
    print(0.0)
except RuntimeError:
    print(1.0)
