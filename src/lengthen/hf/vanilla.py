"""A static rotation as transformers' own configuration, so that a saved folder loads without us."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedConfig

from lengthen.core import Scheme

from .request import parameters, trained_length


def rope_parameters(config: PreTrainedConfig, schemes: Mapping[str | None, Scheme], tokens: int) -> dict[str, Any]:
    """rope_parameters under which transformers computes the frequencies of the schemes itself; rope_theta is kept."""
    if None in schemes:
        return _one(config, None, schemes[None], tokens)
    return dict(config.rope_parameters) | {kind: _one(config, kind, s, tokens) for kind, s in schemes.items()}


def _one(config: PreTrainedConfig, kind: str | None, scheme: Scheme, tokens: int) -> dict[str, Any]:
    """transformers' 'longrope' with the same factors for short and long texts: frequency_i = theta^(-2i/R) / factor_i."""
    old = dict(parameters(config, kind))
    inv_freq, scale = frequencies(scheme)
    plain = old["rope_theta"] ** (-np.arange(0, 2 * len(inv_freq), 2) / (2 * len(inv_freq)))
    kept = {name: old[name] for name in ("rope_theta", "partial_rotary_factor") if name in old}
    if np.allclose(inv_freq, plain, rtol=1e-6, atol=0) and scale == 1:
        return {**kept, "rope_type": "default"}
    with np.errstate(divide="ignore"):
        factors = (plain / inv_freq).tolist()
    original = trained_length(config, kind)
    return {
        **kept,
        "rope_type": "longrope",
        "short_factor": factors,
        "long_factor": factors,
        "factor": tokens / original,
        "attention_factor": scale,
        "original_max_position_embeddings": original,
    }


def frequencies(scheme: Scheme) -> tuple[np.ndarray, float]:
    """(float64 [R/2] radians per token, what multiplies queries and keys alike) of a static rotation, as it turns position 1."""
    one = torch.ones(1, 1, dtype=torch.float64)
    turn = scheme.rotation.factors(one, torch.zeros_like(one), True)[0, 0]
    return turn.angle().numpy(), turn.abs()[0].item()
