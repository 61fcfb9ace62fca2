"""Evaluation beyond the training length: protocols, controls, statistics, records."""

from .comparison import Cell, Comparison
from .controls import CONTROLS
from .evaluation import Curve, Evaluation, Reading
from .measure import evaluate
from .protocols import PROTOCOLS, find_protocol
from .provenance import provenance
from .records import Record, append_records, read_records, with_extra, write_records
from .statistics import Interval, mean_interval, paired_bootstrap

__all__ = [
    "CONTROLS",
    "PROTOCOLS",
    "Cell",
    "Comparison",
    "Curve",
    "Evaluation",
    "Interval",
    "Reading",
    "Record",
    "append_records",
    "evaluate",
    "find_protocol",
    "mean_interval",
    "paired_bootstrap",
    "provenance",
    "read_records",
    "with_extra",
    "write_records",
]
