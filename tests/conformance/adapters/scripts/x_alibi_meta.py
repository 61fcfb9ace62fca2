"""x-transformers: built on the meta device and filled from a state dict, ALiBi's slopes are never set.
Subject: x-transformers AlibiPositionalBias; check: meta_device; right: 0
"""

import torch
from x_transformers.x_transformers import AlibiPositionalBias

real = AlibiPositionalBias(8)
with torch.device("meta"):
    hollow = AlibiPositionalBias(8)
missing = [name for name, _ in hollow.named_buffers() if name not in real.state_dict()]
print(len(missing))
