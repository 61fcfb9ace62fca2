"""BLOOM in bfloat16: the share of the last 64 neighbours before key 4,096 that get the same ALiBi bias, steepest head.
Subject: transformers BLOOM; check: alibi_bias_bfloat16; right: 0
"""

import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

bias = build_alibi_tensor(torch.ones(1, 4096, dtype=torch.long), 4, torch.bfloat16)[0, 0]
tied = (bias[-64:].diff() == 0).float().mean().item()
print(tied)
