"""Tuning for length: a pretrained model trained on, and the search for its frequencies."""

from .config import TuneConfig
from .drope import Dropped
from .full import FullLength
from .lora import Lora
from .s2 import ShiftedSparse
from .scattered import Scattered
from .skipwise import SkipWise
from .tune import Tuned, tune, with_specs
from .way import Way

__all__ = [
    "Dropped",
    "FullLength",
    "Lora",
    "Scattered",
    "ShiftedSparse",
    "SkipWise",
    "TuneConfig",
    "Tuned",
    "Way",
    "tune",
    "with_specs",
]
