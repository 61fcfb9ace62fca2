"""rotary-embedding-torch: float16 queries of a long text are nan from position 65,520 on.
Subject: rotary-embedding-torch RotaryEmbedding; check: finite, float16; right: 0
"""

import torch
from rotary_embedding_torch import RotaryEmbedding

turned = RotaryEmbedding(32).half().rotate_queries_or_keys(torch.ones(1, 1, 70_000, 32).half())
print(int(turned.isnan().any(-1).sum()))
