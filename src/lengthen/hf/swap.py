"""Changes to a model that last for a while: its rotary modules, its attention, its mode."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedModel

from lengthen.core import Refusal


@dataclass(frozen=True)
class Slot:
    """Where a rotary module hangs."""

    parent: nn.Module
    name: str
    module: nn.Module


@contextmanager
def attending(model: PreTrainedModel, name: str) -> Iterator[None]:
    """The model under another attention implementation, for a while."""
    before = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        if model.config._attn_implementation != name:
            raise Refusal(f"{type(model).__name__} does not take its attention from transformers' AttentionInterface.")
        yield
    finally:
        model.set_attn_implementation(before)


@contextmanager
def replaced(slots: Sequence[Slot], module: nn.Module) -> Iterator[None]:
    """Another rotary module in all slots, for a while."""
    for slot in slots:
        setattr(slot.parent, slot.name, module)
    try:
        yield
    finally:
        for slot in slots:
            setattr(slot.parent, slot.name, slot.module)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every module is in the mode that it was in."""
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
