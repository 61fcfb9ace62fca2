"""The fused CPU kernel: any distance table with its gradient, windows, documents and padding, in linear memory."""

from .backend import Native
from .build import status

__all__ = ["Native", "status"]
