"""transformers checkpoints: read what position scheme they were trained with, and give them another."""

from .export import Exported, export, export_gguf, server_flags
from .extend import Extension, extend, own_scheme
from .lengths import Lengths, resolve_lengths
from .load import load
from .spectrum import Spectrum, declared

__all__ = [
    "Exported",
    "Extension",
    "Lengths",
    "Spectrum",
    "declared",
    "export",
    "export_gguf",
    "extend",
    "load",
    "own_scheme",
    "resolve_lengths",
    "server_flags",
]
