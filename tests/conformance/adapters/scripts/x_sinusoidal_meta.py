"""x-transformers: built on the meta device, the sinusoidal frequencies have no values, and no state dict brings them.
Subject: x-transformers ScaledSinusoidalEmbedding; check: meta_device; right: 0
"""

import torch
from x_transformers.x_transformers import ScaledSinusoidalEmbedding

with torch.device("meta"):
    hollow = ScaledSinusoidalEmbedding(32)
saved = ScaledSinusoidalEmbedding(32).state_dict()
print(sum(b.is_meta and name not in saved for name, b in hollow.named_buffers()))
