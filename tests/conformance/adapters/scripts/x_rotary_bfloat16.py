"""x-transformers: after `.bfloat16()` the rotary frequencies and positions are rounded; cosines at position 4090 are others.
Subject: x-transformers RotaryEmbedding; check: bfloat16; right: 0.05
"""

import torch
from x_transformers.x_transformers import RotaryEmbedding

places = torch.tensor([4090])
half, _ = RotaryEmbedding(32).bfloat16()(places)
exact, _ = RotaryEmbedding(32)(places)
print((half.float().cos() - exact.cos()).abs().max().item())
