"""Checks of bare position encodings, anybody's: rotary encodings, additive biases, embeddings of positions."""

from .check import CHECKS, applicable, module_check
from .load import load_object
from .suite import check_module, module_subject

__all__ = ["CHECKS", "applicable", "check_module", "load_object", "module_check", "module_subject"]
