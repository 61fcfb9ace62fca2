"""x-transformers (PyPI; read at 2.31): its encodings as bare modules."""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from .ports import BiasOfSizes, EmbeddingPort, RotaryPort


class Rotated(RotaryPort):
    """`RotaryEmbedding`, xPos included: factors of given positions, then the library's `apply_rotary_pos_emb`."""

    def channels(self, module: Any) -> int:
        return 2 * len(module.inv_freq)

    def turn(self, module: Any, q: Tensor, k: Tensor, start: int) -> tuple[Tensor, Tensor]:
        return self._apply(module, q, k, torch.arange(start, start + k.shape[-2]))

    def cached(self, module: Any, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self._apply(module, q, k, torch.arange(k.shape[-2]))

    def _apply(self, module: Any, q: Tensor, k: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        freqs, scale = module(places)
        apply = import_module(type(module).__module__).apply_rotary_pos_emb
        return apply(q, freqs, scale), apply(k, freqs, scale**-1.0)


class Polar(Rotated):
    """`PolarEmbedding`: a phase per channel, a learned bias of the keys' phases; heads double their width."""

    def channels(self, module: Any) -> int:
        return len(module.inv_freq)

    def heads(self, module: Any) -> int:
        return len(module.learned_bias)

    def _apply(self, module: Any, q: Tensor, k: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        freqs, bias = module(places)
        apply = import_module(type(module).__module__).apply_polar_pos_emb
        return apply(q, freqs), apply(k, freqs + bias)


class Embedded(EmbeddingPort):
    """`AbsolutePositionalEmbedding` and `ScaledSinusoidalEmbedding`: positions beside an x whose shape alone is read."""

    def at(self, module: Any, positions: Tensor) -> Tensor:
        return module(torch.zeros(1, len(positions), 1), pos=positions)


_HOME = "x_transformers.x_transformers"
ADAPTERS = {
    f"{_HOME}.RotaryEmbedding": lambda _: Rotated(),
    f"{_HOME}.PolarEmbedding": lambda _: Polar(),
    f"{_HOME}.AlibiPositionalBias": lambda _: BiasOfSizes("forward"),
    f"{_HOME}.RelativePositionBias": lambda _: BiasOfSizes("forward"),
    f"{_HOME}.DynamicPositionBias": lambda _: BiasOfSizes("forward"),
    f"{_HOME}.AbsolutePositionalEmbedding": lambda _: Embedded(),
    f"{_HOME}.ScaledSinusoidalEmbedding": lambda _: Embedded(),
}
