"""rotary-embedding-torch: in float32 one query against 60 cached keys scores as in one forward.
Subject: rotary-embedding-torch RotaryEmbedding; check: cached_scores; right: 0.001
"""

import torch
from rotary_embedding_torch import RotaryEmbedding

rotary, (q, k) = RotaryEmbedding(32), torch.randn(2, 1, 1, 60, 32, generator=torch.Generator().manual_seed(0))
whole = rotary.rotate_queries_or_keys(q)[:, :, -1:] @ rotary.rotate_queries_or_keys(k).mT
step_q, step_k = rotary.rotate_queries_with_cached_keys(q[:, :, -1:], k)
print((whole - step_q @ step_k.mT).abs().max().item() / 32**0.5)
