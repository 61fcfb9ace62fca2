"""rotary-embedding-torch: a bfloat16 call leaves rounded angles in the cache, and a later float32 call uses them.
Subject: rotary-embedding-torch RotaryEmbedding; check: earlier_calls; right: 1e-05
"""

import torch
from rotary_embedding_torch import RotaryEmbedding

x = torch.randn(1, 1, 400, 32, generator=torch.Generator().manual_seed(0))
first = RotaryEmbedding(32).rotate_queries_or_keys(x)
rotary = RotaryEmbedding(32)
rotary.rotate_queries_or_keys(torch.zeros(1, 1, 600, 32).bfloat16())
print((rotary.rotate_queries_or_keys(x) - first).abs().max().item())
