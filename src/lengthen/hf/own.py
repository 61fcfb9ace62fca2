"""The frequencies that a checkpoint was trained with: what its configuration declares, and what its rotary module holds."""

from typing import Any

import numpy as np
from torch import nn
from transformers import PreTrainedConfig

from lengthen.core import Adaptive, FrequencyRule, Refusal, UsageError

from .families import FAMILIES, Family
from .spectrum import Spectrum, declared


def own_spectra(config: PreTrainedConfig) -> dict[str | None, Spectrum]:
    """By layer type, what the configuration declares, for a model that is at hand to be compared with it.

    Model types that are not known are read as most are: what they do otherwise shows in their tables and logits.
    """
    try:
        return declared(config, FAMILIES.get(config.model_type, Family()))
    except KeyError as error:
        raise Refusal(
            f"The configuration of {type(config).__name__} has no {error}, so its frequencies cannot be read from it."
        ) from error


def settled(spectrum: Spectrum, tokens: int | None) -> FrequencyRule:
    """The rule for a text of at most `tokens`. Raises UsageError where it depends on the length and none is given."""
    if isinstance(spectrum.rule, Adaptive) and tokens is None:
        raise UsageError(
            f"The frequencies of this checkpoint ({spectrum.kind}) depend on the length of the text. Settle it: "
            "extend(..., tokens=N)."
        )
    return spectrum.settled(tokens)


def spectra(module: nn.Module) -> dict[str | None, tuple[np.ndarray, float]]:
    """What a rotary module of transformers holds at the moment, to be compared with what is declared.

    By layer type (None: one for all): inverse frequencies float64 [R/2], and what multiplies queries and keys alike.
    """
    names = [
        n for n, _ in module.named_buffers(recurse=False) if n.endswith("inv_freq") and not n.endswith("original_inv_freq")
    ]
    return {
        _type(n): (_numbers(getattr(module, n)), float(getattr(module, _beside(n, "attention_scaling"), 1.0))) for n in names
    }


def _numbers(buffer: Any) -> np.ndarray:
    return buffer.detach().double().cpu().numpy()


def _type(buffer: str) -> str | None:
    prefix = buffer.removesuffix("inv_freq").rstrip("_")
    return prefix if prefix else None


def _beside(buffer: str, name: str) -> str:
    return buffer.removesuffix("inv_freq") + name
