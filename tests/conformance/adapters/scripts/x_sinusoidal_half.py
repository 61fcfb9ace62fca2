"""x-transformers: after `.half()` the scaled sinusoidal embedding of position 70,000 is nan; after `.bfloat16()` 4090 is another.
Subject: x-transformers ScaledSinusoidalEmbedding; check: bfloat16, float16, finite; right: 0.01
"""

import torch
from x_transformers.x_transformers import ScaledSinusoidalEmbedding

at = lambda module, place: module(torch.zeros(1, 1, 1), pos=torch.tensor([place])).float()
rounded = at(ScaledSinusoidalEmbedding(32).bfloat16(), 4090) - at(ScaledSinusoidalEmbedding(32), 4090)
print(rounded.abs().max().item() + at(ScaledSinusoidalEmbedding(32).half(), 70_000).isnan().sum().item())
