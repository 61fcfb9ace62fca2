"""Errors are sentences: what was asked, what is there, and the way out."""

import sys
from collections.abc import Iterable
from difflib import get_close_matches


class LengthenError(Exception):
    """Base of every error that lengthen raises on purpose."""


class UsageError(LengthenError, ValueError):
    """An argument, file or combination that cannot work."""


class UnknownNameError(UsageError):
    """A name that no registry holds; near names are listed."""


class LengthError(UsageError):
    """A length or position that the method has no answer for (a learned table, say)."""


class Refusal(LengthenError, NotImplementedError):
    """A backend or method that cannot serve what was asked, with the reason."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """An error that names the near matches of `name` among `known`."""
    known = sorted(known)
    near = get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(repr(n) for n in near)}?" if near else f"Known: {', '.join(known)}."
    return UnknownNameError(f"There is no {kind} named {name!r}. {hint}")


def require_positive(owner: str, name: str, value: float, unit: str) -> None:
    """Refuses a value that is not a finite number above zero."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= sys.float_info.max:
        raise UsageError(f"The {name!r} of {owner} must be a positive, finite number of {unit}, got {value!r}.")


def require_count(owner: str, name: str, value: int, unit: str, least: int = 1) -> None:
    """Refuses a value that is not a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(f"The {name!r} of {owner} must be a whole number of {unit}, at least {least}, got {value!r}.")


def require_even(owner: str, name: str, value: int) -> None:
    """Refuses an odd or non-positive size; rotary encodings turn channels in pairs."""
    require_count(owner, name, value, "channels", least=2)
    if value % 2:
        raise UsageError(
            f"{owner} turns channels in pairs, so its {name!r} must be even, got {value}. Use {value - 1} or {value + 1}."
        )
