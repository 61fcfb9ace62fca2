"""Any family in float64 with attention computed from a matrix of distances: its layers are transformers', its positions the paper's."""

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

NAME = "quadratic"


@dataclass(frozen=True)
class Facts:
    """What a tiny model of a family does, written down by hand."""

    size: int = 16
    """Channels of a head that turn."""
    neighbours: bool = False
    """Whether channels (2i, 2i+1) turn together."""
    turns: tuple[bool, ...] = (True, True)
    """By layer."""
    windows: tuple[int | None, ...] = (None, None)
    """By layer."""


class Still(nn.Module):
    """A rotary module that turns nothing."""

    def __init__(self, size: int):
        super().__init__()
        self.size = size

    def forward(self, x: Tensor, position_ids: Tensor, *_: object) -> tuple[Tensor, Tensor]:
        shape = (*position_ids.shape, self.size)
        return x.new_ones(shape), x.new_zeros(shape)


def quadratic_logits(
    model: PreTrainedModel, facts: Facts, ids: Tensor, far: np.ndarray, inv_freq: np.ndarray, scale: float = 1.0
) -> Tensor:
    """[1, T] -> [T, V]. `far` [T, T]: distance at which each query scores each key, nan where it does not see it."""
    exact = copy.deepcopy(model).double()
    _decoder(exact).rotary_emb = Still(facts.size)
    true = np.subtract.outer(np.arange(len(far)), np.arange(len(far))).astype(float)
    true[true < 0] = np.nan

    def attend(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: object, scaling: float, **_: object) -> tuple:
        n = module.layer_idx
        d = far if facts.turns[n] else true
        seen = ~np.isnan(d) if facts.windows[n] is None else ~np.isnan(d) & (true < facts.windows[n])
        d = np.nan_to_num(d) if facts.turns[n] else np.zeros_like(d)
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
        by = scale if facts.turns[n] else 1.0
        scores = _scores(q, k, facts, torch.from_numpy(d), torch.from_numpy(inv_freq), by) * scaling
        weights = scores.masked_fill(~torch.from_numpy(seen), -torch.inf).softmax(-1)
        return (weights @ v).transpose(1, 2), None

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, lambda *_, **__: None)
    exact.set_attn_implementation(NAME)
    # The grouped products of experts have no float64.
    exact.set_experts_implementation("eager")
    with torch.no_grad():
        return exact(ids, use_cache=False)[0][0]


def _scores(q: Tensor, k: Tensor, facts: Facts, d: Tensor, inv_freq: Tensor, scale: float) -> Tensor:
    """[B, H, Q, K]: channels that turn by their distance, and the rest as it is."""
    turned, rest = slice(0, facts.size), slice(facts.size, None)
    a, b = (_complex(x[..., turned], facts.neighbours) for x in (q, k))
    turn = torch.polar(torch.full((*d.shape, len(inv_freq)), scale**2, dtype=torch.float64), d[..., None] * inv_freq)
    return torch.einsum("bhic,bhjc,ijc->bhij", a, b.conj(), turn).real + q[..., rest] @ k[..., rest].transpose(-1, -2)


def _complex(x: Tensor, neighbours: bool) -> Tensor:
    a, b = (x[..., ::2], x[..., 1::2]) if neighbours else x.chunk(2, dim=-1)
    return torch.complex(a, b)


def _decoder(model: PreTrainedModel) -> nn.Module:
    return next(m for m in model.modules() if "rotary_emb" in dict(m.named_children()))
