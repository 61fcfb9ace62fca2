"""x-transformers: after `.bfloat16()` the polar frequencies and positions are rounded; cosines at position 4090 are others.
Subject: x-transformers PolarEmbedding; check: bfloat16, float16; right: 0.05
"""

import torch
from x_transformers.x_transformers import PolarEmbedding

places = torch.tensor([4090])
half, exact = PolarEmbedding(32, 4).bfloat16()(places)[0], PolarEmbedding(32, 4)(places)[0]
print((half.float().cos() - exact.cos()).abs().max().item())
