"""transformers: the bare rotary module, built on the meta device, has frequencies without values, and no state dict brings them.
Subject: transformers LlamaRotaryEmbedding; check: meta_device; right: 0
"""

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

config = LlamaConfig()
with torch.device("meta"):
    hollow = LlamaRotaryEmbedding(config)
saved = LlamaRotaryEmbedding(config).state_dict()
print(int(hollow.inv_freq.is_meta and "inv_freq" not in saved))
