"""What transformers itself computes from a configuration, and what the model says with it."""

from copy import deepcopy
from typing import Any

import numpy as np
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import PreTrainedConfig

from ..install import Installed
from ..own import spectra
from ..probe import answers, gap
from ..swap import Slot, replaced
from .native import Parameters, Reader


def reader(installed: Installed, config: PreTrainedConfig, layer_type: str | None, tokens: int) -> Reader:
    """Reads rope_parameters of one layer type by the model's own rotary module; nothing where it does not know them.

    tokens: max_position_embeddings beside them.
    """

    def read(candidate: Parameters) -> tuple[np.ndarray, float]:
        whole = candidate if layer_type is None else dict(config.rope_parameters) | {layer_type: candidate}
        try:
            asked = with_entries(config, rope_parameters=whole, max_position_embeddings=tokens)
            return spectra(rotary_module(installed, asked))[layer_type]
        except (KeyError, TypeError, ValueError, StrictDataclassError):
            return np.empty(0), 0.0

    return read


def rotary_module(installed: Installed, config: PreTrainedConfig) -> nn.Module:
    """The rotary module that the model's class builds from a configuration, once that has been written and read again."""
    slot, loaded = installed.seen.slots[0], type(config).from_dict(config.to_dict())
    return type(slot.module)(config=loaded).to(next(slot.parent.parameters()).device)


def with_entries(config: PreTrainedConfig, **entries: Any) -> PreTrainedConfig:
    """A copy with other entries."""
    made = deepcopy(config)
    for name, value in entries.items():
        setattr(made, name, deepcopy(value))
    return made


def proven(installed: Installed, config: PreTrainedConfig) -> float:
    """How far the extended model is from itself under transformers' rotary module, in deviations of its logits."""
    expected = answers(installed.model)
    now = [Slot(slot.parent, slot.name, getattr(slot.parent, slot.name)) for slot in installed.seen.slots]
    with replaced(now, rotary_module(installed, config)):
        return gap(answers(installed.model), expected)
