"""What decides a training run, as one frozen record."""

import math
from dataclasses import dataclass

from lengthen.core import UsageError
from lengthen.core.errors import require_count, require_positive


@dataclass(frozen=True)
class TrainConfig:
    """Settings of one run. Two runs with equal settings, data, model and machine end in equal numbers."""

    steps: int
    """Optimiser steps of the whole run; the cosine ends there."""
    lr: float = 2e-3
    """Learning rate at the end of the warm-up."""
    warmup: int | None = None
    """Steps of linear warm-up; None: a tenth of `steps`, at most 100."""
    lr_floor: float = 0.1
    """Learning rate at the end, as a share of `lr`."""
    scheme_lr: float = 1.0
    """Learning rate of the schemes' own parameters, as a multiple of the rest's; tables that start at zero may want more."""
    weight_decay: float = 0.1
    """AdamW's, per step and learning rate, on matrices outside the schemes only."""
    beta1: float = 0.9
    """Memory of the mean gradient."""
    beta2: float = 0.95
    """Memory of the mean squared gradient."""
    clip: float | None = 1.0
    """Largest norm of the gradient; None: any."""
    accumulate: int = 1
    """Pieces that the rows of a step are read in, one after the other, to save memory; the gradient is that of the whole step."""
    precision: str = "fp32"
    """'fp32', or 'bf16' for autocast. Weights, optimiser and loss are float32 in both."""
    log_every: int = 10
    """Steps per line of train.jsonl; also how often the device is asked for its losses."""
    checkpoint_every: int = 500
    """Steps between checkpoints; the first and the last state are always written."""
    diverged_ratio: float = 1.5
    """A loss above this multiple of max(first loss, ln vocabulary) counts as diverging; such states are not checkpointed."""
    diverged_steps: int = 50
    """Diverging steps in a row that end the run."""
    seed: int = 0
    """Of dropout and of random positions. The data order and the initial weights have seeds of their own."""

    def __post_init__(self):
        for name in ("steps", "log_every", "checkpoint_every", "diverged_steps"):
            require_count("TrainConfig", name, getattr(self, name), "steps")
        require_count("TrainConfig", "accumulate", self.accumulate, "pieces of a step")
        require_count("TrainConfig", "seed", self.seed, "(a seed)", least=0)
        for name, unit in (("lr", "learning rate"), ("scheme_lr", "multiples of lr"), ("diverged_ratio", "multiples")):
            require_positive("TrainConfig", name, getattr(self, name), unit)
        if self.clip is not None:
            require_positive("TrainConfig", "clip", self.clip, "gradient norm")
        for name in ("beta1", "beta2"):
            self._require_between(name, 0, 1, open_above=True)
        self._require_between("lr_floor", 0, 1)
        self._require_between("weight_decay", 0, math.inf, open_above=True)
        if not math.isfinite(self.lr * self.scheme_lr):
            raise UsageError(f"The 'lr' and 'scheme_lr' of TrainConfig must be finite, got {self.lr} and {self.scheme_lr}.")
        if self.warmup is not None:
            require_count("TrainConfig", "warmup", self.warmup, "steps", least=0)
            if self.warmup > self.steps:
                raise UsageError(f"A warm-up of {self.warmup} steps does not fit into {self.steps} steps; shorten it.")
        if self.precision not in ("fp32", "bf16"):
            raise UsageError(f"The 'precision' of TrainConfig must be 'fp32' or 'bf16', got {self.precision!r}.")

    def _require_between(self, name: str, low: float, high: float, open_above: bool = False) -> None:
        value = getattr(self, name)
        if not (low <= value < high or (value == high and not open_above)):
            end = ")" if open_above else "]"
            raise UsageError(f"The {name!r} of TrainConfig must lie in [{low}, {high}{end}, got {value}.")

    @property
    def warmup_steps(self) -> int:
        """`warmup`, its default filled in."""
        return self.warmup if self.warmup is not None else min(self.steps // 10, 100)
