"""The `lengthen` command: one file per verb. Parses, calls a function that a notebook can call, prints or writes."""

from .app import main

__all__ = ["main"]
