"""Llama, two documents in one row with positions that restart and no other argument: the second one, packed and alone.
Subject: transformers Llama; check: packed_defaults; right: 0.001
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}
model, ids = LlamaForCausalLM(LlamaConfig(**sizes, initializer_range=0.2)).eval(), torch.randint(0, 99, (1, 24))
positions = torch.cat((torch.arange(10), torch.arange(14)))[None]
with torch.no_grad():
    packed = model(ids, position_ids=positions).logits[:, 10:]
    alone = model(ids[:, 10:], use_cache=False).logits
print((packed - alone).abs().max().item())
