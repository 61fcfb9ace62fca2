"""rotary-embedding-torch: the helper for cached keys raises with xPos where tokens stand before heads.
Subject: rotary-embedding-torch RotaryEmbedding, use_xpos, seq_before_head_dim; check: cached_scores; right: 0
"""

import torch
from rotary_embedding_torch import RotaryEmbedding

rotary = RotaryEmbedding(32, use_xpos=True, seq_before_head_dim=True)
q, k = torch.randn(1, 1, 2, 32), torch.randn(1, 60, 2, 32)
try:
    rotary.rotate_queries_with_cached_keys(q, k)
    print(0.0)
except RuntimeError:
    print(1.0)
