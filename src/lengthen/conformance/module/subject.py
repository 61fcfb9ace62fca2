"""A position encoding under check: how to make one, and how to call it."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..adapters.ports import BiasPort, EmbeddingPort, RotaryPort

WINDOW = 8
"""Tokens of a look at far positions."""


@dataclass(frozen=True)
class ModuleSubject:
    """A bare encoding, and the port through which it is called."""

    name: str
    make: Callable[[], Any]
    """A fresh one, always with the same parameters."""
    port: RotaryPort | BiasPort | EmbeddingPort
    built: bool = True
    """Whether `make` constructs (a class or factory), rather than copies an instance."""
    seed: int = 0

    @property
    def kind(self) -> str:
        """'rotary', 'bias' or 'embedding'."""
        kinds = {RotaryPort: "rotary", BiasPort: "bias", EmbeddingPort: "embedding"}
        return next(name for kind, name in kinds.items() if isinstance(self.port, kind))

    def generator(self, salt: int = 0) -> torch.Generator:
        return torch.Generator().manual_seed(1000 * self.seed + salt)

    def converted(self, dtype: torch.dtype) -> Any:
        """A fresh one after `.to(dtype)`; as it is where it is no module and holds nothing to convert."""
        made = self.make()
        return made.to(dtype) if isinstance(made, nn.Module) else made

    def reference(self, rounded_to: torch.dtype | None) -> Any:
        """A fresh one in float64 whose trained parameters, and nothing else, were rounded to `rounded_to` first, if given."""
        made = self.make()
        with torch.no_grad():
            for p in parameters(made):
                if p.requires_grad and rounded_to is not None:
                    p.copy_(p.to(rounded_to))
        return made.double() if isinstance(made, nn.Module) else made

    def vectors(self, tokens: int, salt: int = 0) -> tuple[Tensor, Tensor]:
        """Random queries and keys for a rotary encoding, float32 [1, H, T, D], each entry exact in half precision."""
        made = self.make()
        shape = (2, 1, self.port.heads(made), tokens, self.port.channels(made))
        q, k = torch.randn(shape, generator=self.generator(salt)).bfloat16().clamp(-4, 4).float()
        return q, k


def parameters(module: Any) -> list[nn.Parameter]:
    """What a module holds to train; nothing where it is no `nn.Module`."""
    return list(module.parameters()) if isinstance(module, nn.Module) else []


def fresh_copies(instance: Any) -> Callable[[], Any]:
    """A maker of copies of an instance."""
    kept = copy.deepcopy(instance)
    return lambda: copy.deepcopy(kept)


def seeded(make: Callable[[], Any], seed: int) -> Callable[[], Any]:
    """`make` with the random state fixed, and restored afterwards; modules come in evaluation mode."""

    def made() -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            found = make()
        return found.eval() if isinstance(found, nn.Module) else found

    return made
