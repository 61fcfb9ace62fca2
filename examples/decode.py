"""Batched decoding of left-padded prompts with a cache, far beyond the training length."""

import torch

from lengthen.models import make_decoder, preset
from lengthen.models.generate import generate

model = make_decoder(preset("tiny"), "alibi", train_length=32).eval()
prompts = ["To be, or not", "Length"]
width = max(map(len, prompts))
ids = torch.tensor([[0] * (width - len(p)) + list(p.encode()) for p in prompts])
valid = torch.tensor([[False] * (width - len(p)) + [True] * len(p) for p in prompts])
out = generate(model, ids, 64, valid=valid)
print(f"{ids.shape[1]} tokens in, {out.shape[1]} after decoding; the model is untrained, so they mean nothing.")
