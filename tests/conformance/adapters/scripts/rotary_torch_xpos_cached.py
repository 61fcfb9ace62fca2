"""rotary-embedding-torch: one query against cached keys scores otherwise than in one forward with xPos.
Subject: rotary-embedding-torch RotaryEmbedding, use_xpos; check: cached_scores; right: 0.001
"""

import torch
from rotary_embedding_torch import RotaryEmbedding

q, k = torch.randn(2, 1, 1, 60, 32, generator=torch.Generator().manual_seed(0))
whole_q, whole_k = RotaryEmbedding(32, use_xpos=True).rotate_queries_and_keys(q, k)
step_q, step_k = RotaryEmbedding(32, use_xpos=True).rotate_queries_with_cached_keys(q[:, :, -1:], k)
whole, step = whole_q[:, :, -1:] @ whole_k.mT, step_q @ step_k.mT
print((whole - step).abs().max().item() / 32**0.5)
