"""Llama in float64 with attention computed from a matrix of distances: nothing of lengthen, nothing of transformers' code."""

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel


def llama_logits(
    model: PreTrainedModel,
    ids: Tensor,
    apart: np.ndarray,
    inv_freq: np.ndarray,
    scale: float = 1.0,
    heat: np.ndarray | None = None,
    bias: np.ndarray | None = None,
) -> Tensor:
    """[T] -> [T, V]. `apart` [T, T]: distance at which each query scores each key, nan where it does not see it.

    `scale` multiplies queries and keys alike; `heat` [T] multiplies q . k of a query; `bias` [H, T, T] is added, nats.
    """
    w = {name: p.double() for name, p in model.state_dict().items()}
    heads, groups = model.config.num_attention_heads, model.config.num_key_value_heads
    x = w["model.embed_tokens.weight"][ids]
    angle = torch.from_numpy(np.nan_to_num(apart))[..., None] * torch.from_numpy(inv_freq)
    turn, hidden = torch.polar(torch.full_like(angle, scale**2), angle), torch.from_numpy(np.isnan(apart))
    for n in range(model.config.num_hidden_layers):
        at = f"model.layers.{n}."
        y = normed(x, w[at + "input_layernorm.weight"], model.config.rms_norm_eps)
        q, k, v = (
            split(y @ w[f"{at}self_attn.{name}_proj.weight"].T, count)
            for name, count in zip("qkv", (heads, groups, groups), strict=True)
        )
        out = []
        for h in range(heads):
            a, b, values = q[h], k[h * groups // heads], v[h * groups // heads]
            scores = torch.einsum("ic,jc,ijc->ij", pairs(a), pairs(b).conj(), turn).real / a.shape[-1] ** 0.5
            scores = scores if heat is None else scores * torch.from_numpy(heat)[:, None]
            scores = scores if bias is None else scores + torch.from_numpy(bias[h])
            out.append(scores.masked_fill(hidden, -torch.inf).softmax(-1) @ values)
        x = x + torch.cat(out, dim=-1) @ w[at + "self_attn.o_proj.weight"].T
        y = normed(x, w[at + "post_attention_layernorm.weight"], model.config.rms_norm_eps)
        gate, up = y @ w[at + "mlp.gate_proj.weight"].T, y @ w[at + "mlp.up_proj.weight"].T
        x = x + (gate * gate.sigmoid() * up) @ w[at + "mlp.down_proj.weight"].T
    return normed(x, w["model.norm.weight"], model.config.rms_norm_eps) @ w["lm_head.weight"].T


def normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def split(x: Tensor, heads: int) -> Tensor:
    """[T, heads * D] -> [heads, T, D]."""
    return x.unflatten(-1, (heads, -1)).transpose(0, 1)


def pairs(x: Tensor) -> Tensor:
    """Channels (i, i + D/2) as complex numbers."""
    a, b = x.chunk(2, dim=-1)
    return torch.complex(a, b)


def causal(tokens: int) -> np.ndarray:
    """True distances, nan above the diagonal."""
    i = np.arange(tokens)
    return np.where(i[:, None] >= i, (i[:, None] - i).astype(float), np.nan)
