"""transformers checkpoints: read what position scheme they were trained with, and give them another."""

from .extend import Extension, extend, own_scheme
from .lengths import Lengths, resolve_lengths
from .load import load
from .spectrum import Spectrum, declared

__all__ = ["Extension", "Lengths", "Spectrum", "declared", "extend", "load", "own_scheme", "resolve_lengths"]
