"""Training: one loop, same numbers after any interruption."""

from .config import TrainConfig
from .loop import Batch, Report, Source, TrainResult, train
from .objective import Objective
from .optim import learning_rate, make_optimizer
from .progress import progress_bar

__all__ = [
    "Batch",
    "Objective",
    "Report",
    "Source",
    "TrainConfig",
    "TrainResult",
    "learning_rate",
    "make_optimizer",
    "progress_bar",
    "train",
]
