"""rotary-embedding-torch: float16 queries beyond position 65,504 are turned by an infinite angle.
Subject: rotary-embedding-torch RotaryEmbedding; check: float16_inputs; right: 0.05
"""

import torch
from rotary_embedding_torch import RotaryEmbedding

turned = RotaryEmbedding(32).rotate_queries_or_keys(torch.ones(1, 1, 4, 32).half(), offset=70_000)
print(float("inf") if turned.isnan().any() else 0.0)
