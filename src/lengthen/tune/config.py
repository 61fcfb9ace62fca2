"""What decides a tuning run, beside the way."""

from dataclasses import dataclass

from lengthen.core import UsageError
from lengthen.core.errors import require_count
from lengthen.train import TrainConfig

from .lora import Lora


@dataclass(frozen=True)
class TuneConfig:
    """Settings of a run. Its data order and its positions follow from `training.seed`."""

    training: TrainConfig
    """Steps, learning rate, precision, gradient accumulation. The papers tune whole models at 2e-5, for 1000 steps of 64 rows."""
    batch: int = 8
    """Rows per step."""
    lora: Lora | None = None
    """None: every weight is trained."""
    mix: float = 0.0
    """Share of the steps that read plain rows of the trained length."""

    def __post_init__(self):
        require_count("TuneConfig", "batch", self.batch, "rows")
        if not 0 <= self.mix < 1:
            raise UsageError(
                f"The 'mix' of TuneConfig must lie in [0, 1), got {self.mix}. 0.2 makes every fifth step a short one."
            )
