"""x-transformers: after `.half()` positions beyond 65,504 are infinite, and so are the angles.
Subject: x-transformers RotaryEmbedding; check: float16; right: 0
"""

import torch
from x_transformers.x_transformers import RotaryEmbedding

freqs, _ = RotaryEmbedding(32).half()(torch.tensor([70_000]))
print(int((~torch.isfinite(freqs)).sum()))
