"""Logits of llama.cpp itself, through the wheel of cyllama (0.2.18 holds a llama.cpp of May 2026)."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

CONTEXT = 256
"""Tokens of the cache; keys and values are kept in float32."""
SCALING = {"none": 0, "linear": 1, "yarn": 2}
FLAGS = {
    "rope-freq-base": "rope_freq_base",
    "yarn-orig-ctx": "yarn_orig_ctx",
    "yarn-ext-factor": "yarn_ext_factor",
    "yarn-attn-factor": "yarn_attn_factor",
    "yarn-beta-fast": "yarn_beta_fast",
    "yarn-beta-slow": "yarn_beta_slow",
}
"""By option of the command line, the parameter of the context that it sets."""


def logits(path: Path, tokens: Tensor, flags: dict[str, str] | None = None, vocab: int = 97) -> Tensor:
    """int64 [T] -> float64 [T, V]; flags by name, without dashes."""
    from cyllama.llama import llama_cpp

    class Model(llama_cpp.LlamaModel):
        # cyllama 0.2.18 asks its model for this name, which only its vocabulary has.
        n_vocab = vocab

    context = llama_cpp.LlamaContext(Model(str(path), llama_cpp.LlamaModelParams(), False), _parameters(flags), False)
    batch = llama_cpp.LlamaBatch(n_tokens=len(tokens), embd=0, n_seq_max=1)
    for place, token in enumerate(tokens.tolist()):
        batch.add(token, place, [0], True)
    context.decode(batch)
    return torch.from_numpy(np.array([context.get_logits_ith(n) for n in range(len(tokens))])).double()


def _parameters(flags: dict[str, str] | None) -> Any:
    from cyllama.llama import llama_cpp

    made = llama_cpp.LlamaContextParams()
    made.n_ctx = made.n_batch = made.n_ubatch = CONTEXT
    made.n_threads = made.n_threads_batch = 1
    made.type_k = made.type_v = made.flash_attn_type = 0
    given = dict(flags) if flags is not None else {}
    if "rope-scaling" in given:
        made.rope_scaling_type = SCALING[given.pop("rope-scaling")]
    if "rope-scale" in given:
        made.rope_freq_scale = 1 / float(given.pop("rope-scale"))
    for name, value in given.items():
        kind = int if name == "yarn-orig-ctx" else float
        setattr(made, FLAGS[name], kind(value))
    return made
