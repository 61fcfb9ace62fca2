"""Gemma 3 with YaRN on its full layers and truncate=False: the largest relative error of a rotary frequency.
Subject: transformers Gemma 3, YaRN on full layers; check: frequencies; right: 0.0001
"""

from math import log, pi

import torch
from transformers import Gemma3TextConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding

yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 4096, "truncate": False}
config = Gemma3TextConfig(
    head_dim=64, rope_parameters={"full_attention": yarn, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
)
found = Gemma3RotaryEmbedding(config).full_attention_inv_freq.double()
pair = torch.arange(32).double()
low, high = (64 * log(4096 / (turns * 2 * pi)) / (2 * log(1e4)) for turns in (32, 1))
keep = 1 - ((pair - low) / (high - low)).clamp(0, 1)
right = 1e4 ** (-2 * pair / 64) * (keep + (1 - keep) / 8)
print((found / right - 1).abs().max().item())
