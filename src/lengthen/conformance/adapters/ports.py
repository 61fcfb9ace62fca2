"""How a check calls somebody's position encoding: one small port per kind, in contiguous tokens that begin at `start`."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor


class RotaryPort(ABC):
    """Turns queries and keys [1, H, T, D] of float type; D may differ afterwards."""

    anywhere = True
    """Whether tokens may begin elsewhere than at position 0."""

    @abstractmethod
    def channels(self, module: Any) -> int:
        """D of the tensors that the checks make."""

    def heads(self, module: Any) -> int:
        """H of the tensors that the checks make."""
        return 2

    @abstractmethod
    def turn(self, module: Any, q: Tensor, k: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Both turned at positions start, start + 1, ..."""

    @abstractmethod
    def cached(self, module: Any, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Queries that are the last tokens of the keys, as a decoding step turns them; keys are raw, from position 0."""


class BiasPort(ABC):
    """What is added to the scores, in nats."""

    @abstractmethod
    def block(self, module: Any, queries: int, keys: int) -> Tensor:
        """[H, queries, keys] for the last `queries` of `keys` tokens."""


class EmbeddingPort(ABC):
    """What a position adds to, or makes of, the residual stream."""

    @abstractmethod
    def at(self, module: Any, positions: Tensor) -> Tensor:
        """[T, C] of int64 positions [T]."""


class Rotates(RotaryPort):
    """`module.METHOD(x [1, H, T, D], positions [T])`."""

    def __init__(self, method: str):
        self.method = method

    def channels(self, module: Any) -> int:
        """The first of 64, 32, 128, 16, 96, 8, ... that the module accepts."""
        for width in (64, 32, 128, 16, 96, 48, 80, 256, 8, 4, 2):
            try:
                turned = getattr(module, self.method)(torch.zeros(1, 1, 2, width), torch.arange(2))
            except (RuntimeError, ValueError, AssertionError, IndexError):
                continue
            if turned.shape == (1, 1, 2, width):
                return width
        # Let the module say itself what it does not like.
        getattr(module, self.method)(torch.zeros(1, 1, 2, 64), torch.arange(2))
        raise ValueError(f"{type(module).__name__}.{self.method} changes the shape [1, 1, 2, 64] of what it turns")

    def turn(self, module: Any, q: Tensor, k: Tensor, start: int) -> tuple[Tensor, Tensor]:
        places = torch.arange(start, start + q.shape[-2])
        return self._at(module, q, places), self._at(module, k, places)

    def cached(self, module: Any, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(k.shape[-2])
        return self._at(module, q, places[-q.shape[-2] :]), self._at(module, k, places)

    def _at(self, module: Any, x: Tensor, places: Tensor) -> Tensor:
        return getattr(module, self.method)(x, places)


class CosSin(RotaryPort):
    """`module.METHOD(x, position_ids [1, T])` -> (cos, sin) [1, T, D] for channels paired with those half a head away, as in
    transformers; what they turn is x cos + (-second half, first half) sin, in the type of x."""

    def __init__(self, method: str):
        self.method = method

    def channels(self, module: Any) -> int:
        return self._factors(module, torch.zeros(1, 1, 2, 64), torch.arange(2))[0].shape[-1]

    def turn(self, module: Any, q: Tensor, k: Tensor, start: int) -> tuple[Tensor, Tensor]:
        places = torch.arange(start, start + q.shape[-2])
        return self._at(module, q, places), self._at(module, k, places)

    def cached(self, module: Any, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(k.shape[-2])
        return self._at(module, q, places[-q.shape[-2] :]), self._at(module, k, places)

    def _factors(self, module: Any, x: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        return getattr(module, self.method)(x, places[None])

    def _at(self, module: Any, x: Tensor, places: Tensor) -> Tensor:
        cos, sin = self._factors(module, x, places)
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-second, first), dim=-1) * sin


class BiasAtPositions(BiasPort):
    """`module.METHOD(query positions [Q], key positions [K])` -> [H, Q, K], with a batch of one or without."""

    def __init__(self, method: str):
        self.method = method

    def block(self, module: Any, queries: int, keys: int) -> Tensor:
        places = torch.arange(keys)
        return heads_first(getattr(module, self.method)(places[keys - queries :], places), queries, keys)


class BiasOfSizes(BiasPort):
    """`module.METHOD(queries, keys)`: sizes, the queries being the last tokens of the keys."""

    def __init__(self, method: str):
        self.method = method

    def block(self, module: Any, queries: int, keys: int) -> Tensor:
        return heads_first(getattr(module, self.method)(queries, keys), queries, keys)


class EmbedsPositions(EmbeddingPort):
    """`module.METHOD(positions [T])` -> [T, C], with a batch of one or without."""

    def __init__(self, method: str):
        self.method = method

    def at(self, module: Any, positions: Tensor) -> Tensor:
        return getattr(module, self.method)(positions).reshape(len(positions), -1)


def heads_first(bias: Tensor, queries: int, keys: int) -> Tensor:
    """[H, Q, K] of a bias that may have a batch of one, or no heads. Raises ValueError for any other shape."""
    if bias.shape[-2:] != (queries, keys) or any(n != 1 for n in bias.shape[:-3]):
        raise ValueError(
            f"the bias of {queries} queries and {keys} keys has shape {tuple(bias.shape)}, not [H, {queries}, {keys}]"
        )
    return bias.reshape(-1, queries, keys)
