"""A check of somebody's model or module, how it is registered, and how it is judged."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from lengthen.core.errors import unknown

from ..check import NotApplicable
from .verdict import Measured, Verdict

__all__ = ["Check", "NotApplicable", "chosen", "judge", "registering"]


@dataclass(frozen=True)
class Check:
    """One property that a subject should have."""

    name: str
    theme: str
    """What it is about, or the kind of encoding that it is for."""
    asserts: str
    """One line."""
    meaning: str
    """What a failure means for the user."""
    cause: str
    """The usual cause of a failure."""
    measure: Callable[[Any], Measured]
    """Raises NotApplicable with the reason."""

    def __call__(self, subject: Any) -> Verdict:
        """The verdict on a subject; never raises because of it."""
        return judge(self, subject)


def registering(register: list[Check]) -> Callable[..., Callable[[Callable[[Any], Measured]], Check]]:
    """A decorator that puts checks into `register`; the first line of a measurement's docstring says what is asserted."""

    def check(name: str, theme: str, *, meaning: str, cause: str) -> Callable[[Callable[[Any], Measured]], Check]:
        def decorate(measure: Callable[[Any], Measured]) -> Check:
            register.append(Check(name, theme, measure.__doc__.strip().split("\n")[0], meaning, cause, measure))
            return register[-1]

        return decorate

    return check


def chosen(
    checks: Iterable[Check], only: Iterable[str] = (), skip: Iterable[str] = (), expected: Mapping[str, str] | None = None
) -> list[Check]:
    """The checks to run, in their order. Raises UsageError for a name in `only`, `skip` or `expected` that none has."""
    known = {c.name: c for c in checks}
    only, skip = set(only), set(skip)
    for name in sorted({*only, *skip, *(expected if expected is not None else ())} - set(known)):
        raise unknown("check", name, known)
    return [c for name, c in known.items() if (not only or name in only) and name not in skip]


@torch.no_grad()
def judge(check: Check, subject: Any, expected: str | None = None) -> Verdict:
    """The verdict of one check; never raises because of the subject. `expected`: why it is known to fail."""
    start = perf_counter()
    try:
        found = check.measure(subject)
    except NotApplicable as e:
        outcome, numbers, reason = "not applicable", (None, None), str(e)
    except Exception as e:
        outcome, numbers, reason = "error", (None, None), f"{type(e).__name__}: {' '.join(str(e).split())}"
    else:
        outcome, numbers, reason = "pass" if found.good else "fail", (found.error, found.tolerance), found.remark
    failed = outcome in ("fail", "error")
    if failed and expected is not None:
        outcome, reason = "expected failure", f"{reason}; expected: {expected}" if reason else f"expected: {expected}"
    advice = {"meaning": check.meaning, "cause": check.cause} if failed else {}
    return Verdict(check.name, outcome, *numbers, reason, check.asserts, **advice, seconds=perf_counter() - start)
