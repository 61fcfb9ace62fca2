"""x-transformers: data-dependent ALiBi forgets its gates of earlier tokens when it decodes with a cache.
Subject: x-transformers Decoder, data-dependent ALiBi; check: cached_tokens, left_padding_cached; right: 0.001
"""

import torch
from x_transformers import Decoder, TransformerWrapper

torch.manual_seed(0)
layers = Decoder(dim=64, depth=2, heads=4, attn_data_dependent_alibi=True)
model = TransformerWrapper(num_tokens=50, max_seq_len=64, use_abs_pos_emb=False, attn_layers=layers).eval()
ids = torch.randint(0, 50, (1, 24))
full, (_, cache) = model(ids), model(ids[:, :23], return_intermediates=True)
step = model(ids, cache=cache)
print((step[:, -1] - full[:, -1]).abs().max().item())
