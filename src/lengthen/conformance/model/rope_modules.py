"""The rotary modules of a model of transformers: their frequencies, and the cosines and sines that they give."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .check import NotApplicable
from .hugging_face import HuggingFace
from .subject import Subject


@dataclass(frozen=True)
class RopeModule:
    """One spectrum of one rotary module."""

    name: str
    module: nn.Module
    layer_type: str | None
    """None: one spectrum for all layers."""
    inv_freq: np.ndarray
    """float64 [R/2], radians per token."""
    scaling: float
    """Multiplies cosines and sines."""

    @property
    def label(self) -> str:
        return self.name if self.layer_type is None else f"{self.name}, {self.layer_type}"

    def table(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        """What it gives for positions [T] and hidden states of `dtype`: cosines and sines, [2, T, ...]."""
        kind = [] if self.layer_type is None else [self.layer_type]
        given = self.module(torch.zeros(1, len(positions), 1, dtype=dtype), positions[None], *kind)
        if not isinstance(given, tuple) or len(given) != 2:
            raise NotApplicable(f"{type(self.module).__name__} does not give cosines and sines")
        return torch.stack([t[0] for t in given])

    def settled(self, place: int) -> "RopeModule":
        """As it is for a text that reaches `place`, where its frequencies depend on the length. The module remembers."""
        self.table(torch.tensor([place]), torch.float32)
        return next(r for r in spectra_of(self.name, self.module) if r.layer_type == self.layer_type)


def config_of(subject: Subject) -> Any:
    """The text config of a model of transformers. Raises NotApplicable for others."""
    if not isinstance(subject, HuggingFace):
        raise NotApplicable("it is no model of transformers, so how it is configured is not known")
    return subject.model.config.get_text_config()


def rope_modules(subject: Subject) -> list[RopeModule]:
    """Every spectrum of a model of transformers. Raises NotApplicable where there is none, or none that counts."""
    if getattr(config_of(subject), "alibi", False):
        raise NotApplicable("it has rotary modules and does not use them: its config asks for ALiBi")
    found = [r for name, m in subject.model.named_modules() for r in spectra_of(name, m)]
    if not found:
        raise NotApplicable("it has no rotary module (one with a buffer named inv_freq)")
    return found


def spectra_of(name: str, module: nn.Module) -> Iterator[RopeModule]:
    """The spectra of one module; none where it is not rotary."""
    from lengthen.hf.own import spectra

    for kind, (inv_freq, scaling) in spectra(module).items():
        yield RopeModule(name, module, kind, inv_freq, scaling)
