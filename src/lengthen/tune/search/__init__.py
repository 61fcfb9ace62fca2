"""The search for rotary frequencies: LongRoPE and LongRoPE2."""

from .evolution import EvolutionConfig, Found, evolve
from .longrope import PAPER_STARTS, LongRoPESpace
from .longrope2 import LongRoPE2Space
from .rotation import rotation_of, spec_of
from .rows import Row, needle_rows, text_rows
from .search import Factors, search
from .space import Candidate, Space

__all__ = [
    "PAPER_STARTS",
    "Candidate",
    "EvolutionConfig",
    "Factors",
    "Found",
    "LongRoPE2Space",
    "LongRoPESpace",
    "Row",
    "Space",
    "evolve",
    "needle_rows",
    "rotation_of",
    "search",
    "spec_of",
    "text_rows",
]
