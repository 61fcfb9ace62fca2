"""rotary-embedding-torch: xPos keys are not finite at 131,072 tokens in float32.
Subject: rotary-embedding-torch RotaryEmbedding, use_xpos; check: finite; right: 0
"""

import torch
from rotary_embedding_torch import RotaryEmbedding

x = torch.ones(1, 1, 131_072, 32)
q, k = RotaryEmbedding(32, use_xpos=True).rotate_queries_and_keys(x, x)
print(int((~torch.isfinite(q) | ~torch.isfinite(k)).any(-1).sum()))
