"""What a planted bug is."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from lengthen.conformance import Check
from lengthen.core import Scheme, Shape

Make = Callable[[Shape], Scheme]


@dataclass(frozen=True)
class Mutant:
    """A scheme with a bug, or a sound scheme on broken machinery."""

    name: str
    caught_by: str | Check
    """The check that must fail."""
    sound: Make
    broken: Make
    machinery: Callable[[], AbstractContextManager] = nullcontext
    """Plants the bug in the cache or the backends while the check runs on `broken`."""
    bench: Callable[[], AbstractContextManager] = nullcontext
    """The sound counterpart, entered while the check runs on `sound`."""
