"""transformers: Mistral past its sliding window, token by token through the cache, against one forward.
Subject: transformers Mistral; check: cached_switch; right: 0.001
"""

import torch
from transformers import MistralConfig, MistralForCausalLM

torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
config = MistralConfig(**sizes, vocab_size=99, sliding_window=12, initializer_range=0.2)
model, ids, cache, steps = MistralForCausalLM(config).eval(), torch.randint(0, 99, (1, 30)), None, []
with torch.no_grad():
    for n in range(30):
        out = model(ids[:, n : n + 1], use_cache=True, **({} if cache is None else {"cache": cache}))
        cache, steps = out.past_key_values, [*steps, out.logits]
    print((torch.cat(steps, 1) - model(ids).logits).abs().max().item())
