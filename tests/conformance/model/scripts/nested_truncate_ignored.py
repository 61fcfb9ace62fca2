"""Gemma 3 with YaRN on its full layers: 1 where truncate=True and truncate=False give the same frequencies.
Subject: transformers Gemma 3, YaRN on full layers; check: settings_run; right: 0
"""

from transformers import Gemma3TextConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding


def frequencies(truncate):
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 4096}
    ropes = {"full_attention": {**yarn, "truncate": truncate}, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    return Gemma3RotaryEmbedding(Gemma3TextConfig(head_dim=64, rope_parameters=ropes)).full_attention_inv_freq


print(float((frequencies(True) == frequencies(False)).all()))
