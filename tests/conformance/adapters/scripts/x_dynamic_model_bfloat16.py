"""x-transformers: a model with the dynamic position bias raises after `.bfloat16()`.
Subject: x-transformers Decoder, dynamic bias; check: bfloat16_long; right: 0
"""

import torch
from x_transformers import Decoder, TransformerWrapper

layers = Decoder(dim=64, depth=2, heads=4, dynamic_pos_bias=True)
model = TransformerWrapper(num_tokens=50, max_seq_len=64, use_abs_pos_emb=False, attn_layers=layers).eval().bfloat16()
try:
    model(torch.randint(0, 50, (1, 20)))
    print(0.0)
except RuntimeError:
    print(1.0)
