"""x-transformers: after `.bfloat16()` the scaled sinusoidal embedding gives neighbouring positions near 4096 the same vector.
Subject: x-transformers ScaledSinusoidalEmbedding; check: distinct; right: 0
"""

import torch
from x_transformers.x_transformers import ScaledSinusoidalEmbedding

rows = ScaledSinusoidalEmbedding(32).bfloat16()(torch.zeros(1, 64, 1), pos=torch.arange(4032, 4096))
print(int((rows[1:] == rows[:-1]).all(-1).sum()))
