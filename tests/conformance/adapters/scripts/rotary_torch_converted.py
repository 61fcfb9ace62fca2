"""rotary-embedding-torch: after `.bfloat16()` frequencies and positions are rounded; the score of positions 4090 and 4000 moves.
Subject: rotary-embedding-torch RotaryEmbedding; check: bfloat16; right: 0.1
"""

import torch
from rotary_embedding_torch import RotaryEmbedding

x = torch.randn(1, 1, 1, 32, generator=torch.Generator().manual_seed(0)).bfloat16()


def score(rotary, x):
    q, k = (rotary.rotate_queries_or_keys(x, offset=n).double() for n in (4090, 4000))
    return (q * k).sum().item() / 32**0.5


print(abs(score(RotaryEmbedding(32).bfloat16(), x) - score(RotaryEmbedding(32), x.float())))
