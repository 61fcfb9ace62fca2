"""transformers' own frequencies, for a configuration that is written down."""

from types import SimpleNamespace

import numpy as np
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

CLOSE = {"rtol": 3e-6, "atol": 0}
"""transformers computes in float32: base^x loses up to ln(base) units in the last place."""


def theirs(rope_type: str, *, head_size: int, maximum: int = 4096, tokens: int | None = None, **parameters) -> SimpleNamespace:
    """`inv_freq` float64 [R/2] and `mscale`, by transformers."""
    config = LlamaConfig(
        hidden_size=head_size,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=head_size,
        max_position_embeddings=maximum,
        rope_parameters={"rope_type": rope_type, "rope_theta": 10_000.0, **parameters},
    )
    # Lengths that are no tensor would be compared with Python's max; a model passes a tensor.
    given = {} if tokens is None else {"seq_len": torch.tensor(tokens)}
    inv_freq, mscale = ROPE_INIT_FUNCTIONS[rope_type](config, "cpu", **given)
    return SimpleNamespace(inv_freq=inv_freq.double().numpy(), mscale=float(mscale))


def geometric(base: float, dim: int) -> np.ndarray:
    """RoPE's frequencies, one at a time."""
    return np.array([base ** (-2 * i / dim) for i in range(dim // 2)])
