"""rotary-embedding-torch: bfloat16 queries at position 4090 are turned by the angle of another position.
Subject: rotary-embedding-torch RotaryEmbedding; check: bfloat16_inputs; right: 0.05
"""

import torch
from rotary_embedding_torch import RotaryEmbedding

rotary, x = RotaryEmbedding(32), torch.randn(1, 1, 1, 32, generator=torch.Generator().manual_seed(0)).bfloat16()
half = rotary.rotate_queries_or_keys(x, offset=4090)
exact = rotary.rotate_queries_or_keys(x.float(), offset=4090)
print((half.float() - exact).abs().max().item())
