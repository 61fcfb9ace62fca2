"""transformers checkpoints: read what position scheme they were trained with, and give them another."""

from .extend import Extension, extend, own_scheme

__all__ = ["Extension", "extend", "own_scheme"]
