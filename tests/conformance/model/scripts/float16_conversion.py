"""Llama after `.half()`: the largest error of a cosine of its rotary table at position 65,000.
Subject: transformers Llama; check: rotary_table_converted; right: 0.01
"""

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

rotary = LlamaRotaryEmbedding(LlamaConfig(hidden_size=512, num_attention_heads=4))
right = (65_000 * rotary.inv_freq.double()).cos()
cos, _ = rotary.half()(torch.zeros(1, 1, 1, dtype=torch.float16), torch.tensor([[65_000]]))
print((cos[0, 0, :64].double() - right).abs().max().item())
