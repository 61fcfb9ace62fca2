"""Caches remember which extension filled them: keys turned by one rule are wrong under another."""

from collections.abc import Mapping
from itertools import count
from typing import Any

from torch import nn
from transformers import Cache

from lengthen.core import Refusal

from .positions import cache_of

_MARKS = count(1)
_ATTRIBUTE = "lengthen_filled_by"


class Stamp:
    """Marks the caches that one extension fills, and refuses those that something else has filled.

    Raises Refusal for a cache with tokens of another extension, or of the model before it was extended.
    """

    def __init__(self):
        self.mark = next(_MARKS)

    def before(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        """A forward pre-hook."""
        cache = cache_of(kwargs)
        if cache is None:
            return
        tokens = int(cache.get_seq_length())
        if tokens and cache.__dict__.get(_ATTRIBUTE) != self.mark:
            raise Refusal(
                f"This cache holds {tokens} tokens that were read before the model was extended as it is now; their keys were turned "
                "by other rules. Read the text again with a fresh cache."
            )
        cache.__dict__[_ATTRIBUTE] = self.mark

    def after(self, module: nn.Module, args: tuple, output: Any) -> None:
        """A forward hook: the model may have made a cache of its own."""
        values = output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple) else ()
        for cache in (value for value in values if isinstance(value, Cache)):
            cache.__dict__[_ATTRIBUTE] = self.mark
