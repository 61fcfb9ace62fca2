"""x-transformers: xPos scales are not finite in float32 for a text of 131,072 tokens, which every look at far positions meets.
Subject: x-transformers RotaryEmbedding, use_xpos; check: finite, relative, bfloat16, float16, bfloat16_inputs, float16_inputs, autocast; right: 0
"""

import torch
from x_transformers.x_transformers import RotaryEmbedding

_, scale = RotaryEmbedding(32, use_xpos=True)(torch.arange(131_072))
print(int((~torch.isfinite(scale) | ~torch.isfinite(1 / scale)).any(-1).sum()))
