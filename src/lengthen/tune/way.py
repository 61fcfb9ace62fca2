"""A way of showing a model its new length: how long the rows of a step are, where their tokens stand, what attends."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lengthen.core import UsageError
from lengthen.core.errors import require_count

PLAIN, MOVED, SHIFTED, DROPPED = "plain", "moved", "shifted", "dropped"
"""Arms of a model, weights shared: as it is, at given positions, under S2 attention, without positions."""


@dataclass(frozen=True)
class Way(ABC):
    """Settings of one way."""

    trained: int
    """Tokens that the model was trained on."""
    target: int
    """Tokens to reach."""

    def __post_init__(self):
        require_count(type(self).__name__, "trained", self.trained, "tokens", least=2)
        require_count(type(self).__name__, "target", self.target, "tokens", least=2)
        if self.target < self.trained:
            raise UsageError(
                f"The target of {self.target} tokens is below the {self.trained} that the model was trained on, which it reads "
                f"already. Give a target of at least {self.trained}."
            )

    @property
    @abstractmethod
    def row(self) -> int:
        """Tokens of a row."""

    @property
    @abstractmethod
    def arms(self) -> tuple[str, ...]:
        """The arms that its steps use."""

    def arm(self, step: int, steps: int) -> str:
        """The arm of a step, of so many in all."""
        return self.arms[0]

    def short_arm(self, step: int, steps: int) -> str:
        """The arm of a step at the original length, where `mix` makes it one."""
        return PLAIN

    def positions(self, rows: int, seed: tuple[int, ...]) -> Tensor | None:
        """int64 [rows, row]: where the tokens of a step stand, by the seed alone; None: at 0, 1, 2, ..."""
        return None


def generator(seed: tuple[int, ...]) -> int:
    """One number for torch's generator, from several."""
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])


def drawn(draw, seed: tuple[int, ...]) -> Tensor:
    """`draw()`, which uses torch's global generator, under a seed; the caller's randomness is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(generator(seed))
        return draw()
