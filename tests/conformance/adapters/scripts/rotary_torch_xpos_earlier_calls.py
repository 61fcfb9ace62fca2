"""rotary-embedding-torch: a bfloat16 call leaves rounded xPos scales and angles for a later float32 call.
Subject: rotary-embedding-torch RotaryEmbedding, use_xpos; check: earlier_calls; right: 1e-05
"""

import torch
from rotary_embedding_torch import RotaryEmbedding

x = torch.randn(1, 1, 400, 32, generator=torch.Generator().manual_seed(0))
first, _ = RotaryEmbedding(32, use_xpos=True).rotate_queries_and_keys(x, x)
rotary, half = RotaryEmbedding(32, use_xpos=True), torch.zeros(1, 1, 600, 32).bfloat16()
rotary.rotate_queries_and_keys(half, half)
print((rotary.rotate_queries_and_keys(x, x)[0] - first).abs().max().item())
