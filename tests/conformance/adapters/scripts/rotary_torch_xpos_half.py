"""rotary-embedding-torch: xPos turns bfloat16 keys at position 4095 otherwise than float32 keys.
Subject: rotary-embedding-torch RotaryEmbedding, use_xpos; check: bfloat16_inputs, float16_inputs, bfloat16, float16; right: 0.1
"""

import torch
from rotary_embedding_torch import RotaryEmbedding

x = torch.randn(1, 1, 4096, 32, generator=torch.Generator().manual_seed(0)).bfloat16()


def score(x):
    q, k = RotaryEmbedding(32, use_xpos=True).rotate_queries_and_keys(x, x)
    return (q[0, 0, -1].double() @ k[0, 0, -90].double()).item() / 32**0.5


print(abs(score(x) - score(x.float())))
