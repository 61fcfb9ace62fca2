"""Other libraries: how their encodings and models are called. A class is named, and its library never imported for it."""

from . import rotary_embedding_torch, x_transformers

ADAPTERS = {**x_transformers.ADAPTERS, **rotary_embedding_torch.ADAPTERS}
"""Qualified name of a class -> the function from an object of it to its port."""

__all__ = ["ADAPTERS"]
