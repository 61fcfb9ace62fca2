"""transformers: after `.bfloat16()` the bare rotary module has rounded frequencies; its cosines at 16,000 are others.
Subject: transformers LlamaRotaryEmbedding; check: bfloat16, float16; right: 0.02
"""

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

x, places = torch.zeros(1, 1, 1), torch.tensor([[16_000]])
half, exact = (LlamaRotaryEmbedding(LlamaConfig()).to(dtype)(x, places)[0] for dtype in (torch.bfloat16, torch.float32))
print((half - exact).abs().max().item())
