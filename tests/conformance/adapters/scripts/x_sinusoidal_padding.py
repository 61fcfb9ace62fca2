"""x-transformers: the scaled sinusoidal embedding raises where rows are padded on the left.
Subject: x-transformers Decoder, scaled sinusoidal; check: left_padding, left_padding_cached, mask_hides; right: 0
"""

import torch
from x_transformers import Decoder, TransformerWrapper

layers = Decoder(dim=64, depth=2, heads=4)
model = TransformerWrapper(num_tokens=50, max_seq_len=64, scaled_sinu_pos_emb=True, attn_layers=layers).eval()
try:
    model(torch.randint(0, 50, (2, 20)), seq_start_pos=torch.tensor([0, 5]))
    print(0.0)
except RuntimeError:
    print(1.0)
