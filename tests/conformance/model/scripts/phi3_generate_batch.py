"""Phi-3 with LongRoPE: the first logits of `generate` for a prompt of 9 tokens, alone and beside a prompt of 67.
Subject: transformers Phi-3, LongRoPE; check: generate_batch; right: 0.001
"""

import torch
from transformers import Phi3Config, Phi3ForCausalLM

torch.manual_seed(0)
short, long = [1.0] * 8, [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]
rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": short, "long_factor": long}
sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}
lengths = {"max_position_embeddings": 256, "original_max_position_embeddings": 64}
none = {"pad_token_id": 0, "eos_token_id": None, "bos_token_id": None}
model = Phi3ForCausalLM(Phi3Config(**sizes, **lengths, **none, initializer_range=0.2, rope_parameters=rope)).eval()
ids, mask = torch.randint(1, 99, (2, 67)), torch.ones(2, 67, dtype=torch.long)
mask[0, :58] = 0
how = {"max_new_tokens": 1, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
alone = model.generate(ids[:1, 58:], attention_mask=mask[:1, 58:], **how).logits[0]
beside = model.generate(ids * mask, attention_mask=mask, **how).logits[0][:1]
print((alone - beside).abs().max().item())
