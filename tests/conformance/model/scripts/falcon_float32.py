"""Falcon with ALiBi in float32: the share of the last 64 neighbours before key 4,096 that get the same bias, steepest head.
Subject: transformers Falcon, ALiBi; check: alibi_bias; right: 0
"""

import torch
from transformers.models.falcon.modeling_falcon import build_alibi_tensor

bias = build_alibi_tensor(torch.ones(1, 4096, dtype=torch.long), 4, torch.float32)[0, 0]
tied = (bias[-64:].diff() == 0).float().mean().item()
print(tied)
