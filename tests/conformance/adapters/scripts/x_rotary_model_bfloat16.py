"""x-transformers: a rotary model after `.bfloat16()` loses several times more at token 1000 than near the start.
Subject: x-transformers Decoder, rotary; check: bfloat16_long; right: 2.5
"""

import copy

import torch
from x_transformers import Decoder, TransformerWrapper

torch.manual_seed(0)
layers = Decoder(dim=64, depth=2, heads=4, attn_dim_head=32, rotary_pos_emb=True, rotary_emb_dim=32)
model = TransformerWrapper(num_tokens=50, max_seq_len=1200, attn_layers=layers, use_abs_pos_emb=False).eval()
for p in model.parameters():
    p.data = (p.data * (2 if p.ndim == 2 else 1)).bfloat16().float()
ids = torch.randint(0, 50, (1, 1200))
with torch.no_grad():
    error = (copy.deepcopy(model).bfloat16()(ids).float() - model(ids)).abs().amax(-1)[0]
print((error[-300:].mean() / error[:150].mean()).item())
