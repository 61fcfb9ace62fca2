"""x-transformers: the float32 rotary module turns queries at 1,000,000 as float64 does, as far as float32 angles go.
Subject: x-transformers RotaryEmbedding; check: bfloat16_inputs; right: 0.1
"""

import torch
from x_transformers.x_transformers import RotaryEmbedding

places = torch.tensor([999_999])
single, _ = RotaryEmbedding(32)(places)
exact = places.double() * 10_000.0 ** (-torch.arange(0, 32, 2, dtype=torch.float64) / 32)
print((single[0, 0, ::2].double().cos() - exact.cos()).abs().max().item())
