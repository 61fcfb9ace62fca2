"""rotary-embedding-torch: built on the meta device, the xPos scale has no values, and no state dict brings them.
Subject: rotary-embedding-torch RotaryEmbedding, use_xpos; check: meta_device; right: 0
"""

import torch
from rotary_embedding_torch import RotaryEmbedding

with torch.device("meta"):
    hollow = RotaryEmbedding(32, use_xpos=True)
saved = RotaryEmbedding(32, use_xpos=True).state_dict()
print(int(hollow.scale.is_meta and "scale" not in saved))
