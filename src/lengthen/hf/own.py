"""The frequencies that a checkpoint was trained with, read from its rotary module."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lengthen.core import FrequencyRule, UsageError

ADAPTIVE = ("dynamic", "longrope")
"""Kinds whose frequencies depend on how long the text is."""


class Given(FrequencyRule):
    """Frequencies as they are, radians per token."""

    def __init__(self, inv_freq: np.ndarray, mscale: float):
        self._inv_freq, self.mscale = inv_freq, mscale

    def inv_freq(self, dim: int) -> np.ndarray:
        if dim != 2 * len(self._inv_freq):
            raise UsageError(f"These are the frequencies of {2 * len(self._inv_freq)} channels, asked for {dim}.")
        return self._inv_freq


def spectra(module: nn.Module) -> dict[str | None, tuple[np.ndarray, float]]:
    """By layer type (None: one for all): inverse frequencies float64 [R/2], and what multiplies queries and keys alike."""
    names = [
        n for n, _ in module.named_buffers(recurse=False) if n.endswith("inv_freq") and not n.endswith("original_inv_freq")
    ]
    return {
        _type(n): (_numbers(getattr(module, n)), float(getattr(module, _beside(n, "attention_scaling"), 1.0))) for n in names
    }


def rules(module: nn.Module, tokens: int | None) -> dict[str | None, FrequencyRule]:
    """By layer type, the checkpoint's own rule; one that depends on the length is settled for `tokens`.

    Raises UsageError where it depends on the length and none is given.
    """
    return {kind: Given(*_settled(module, kind, numbers, tokens)) for kind, numbers in spectra(module).items()}


def kind_of(module: nn.Module, layer_type: str | None) -> str:
    """What transformers calls the rule: 'default', 'yarn', ..."""
    return module.rope_type if layer_type is None else module.rope_type[layer_type]


def _settled(module: nn.Module, layer_type: str | None, numbers: tuple, tokens: int | None) -> tuple[np.ndarray, float]:
    kind = kind_of(module, layer_type)
    if kind not in ADAPTIVE:
        return numbers
    if tokens is None:
        raise UsageError(
            f"The frequencies of this checkpoint ({kind}) depend on the length of the text. Settle it: extend(..., tokens=N)."
        )
    given: Mapping[str, Any] = {} if layer_type is None else {"layer_type": layer_type}
    inv_freq, scale = ROPE_INIT_FUNCTIONS[kind](module.config, "cpu", seq_len=tokens, **given)
    return _numbers(inv_freq), float(scale)


def _numbers(buffer: Any) -> np.ndarray:
    return buffer.detach().double().cpu().numpy()


def _type(buffer: str) -> str | None:
    prefix = buffer.removesuffix("inv_freq").rstrip("_")
    return prefix if prefix else None


def _beside(buffer: str, name: str) -> str:
    return buffer.removesuffix("inv_freq") + name
