"""x-transformers: after `.half()` the ALiBi bias of a key 65,535 tokens away is infinite.
Subject: x-transformers AlibiPositionalBias; check: float16; right: 0
"""

import torch
from x_transformers.x_transformers import AlibiPositionalBias

bias = AlibiPositionalBias(8).half()(1, 65_536)
print(int((~torch.isfinite(bias)).sum()))
