"""What a check is, and what it says."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite

import torch
from torch import Tensor

from .subject import Subject


@dataclass(frozen=True)
class CheckResult:
    """The verdict of one check on one method."""

    name: str
    status: str
    """'pass', 'fail' or 'n/a'."""
    error: float | None
    """What was measured, in the unit of the check; infinite where the method raised; None where the check does not apply."""
    tolerance: float
    reason: str = ""
    """Why it failed or does not apply, or what was seen on the way."""

    def confirm(self) -> None:
        """Raises AssertionError where the check failed."""
        if self.status == "fail":
            raise AssertionError(f"{self.name}: measured {self.error:.3g}, allowed {self.tolerance:.3g}. {self.reason}")


class NotApplicable(Exception):
    """Raised by a measurement where the check says nothing about this method, with the reason."""


@dataclass(frozen=True)
class Measured:
    """An error with a remark."""

    error: float
    remark: str = ""


@dataclass(frozen=True)
class Check:
    """One property that every method must have."""

    name: str
    asserts: str
    """One line."""
    tolerance: float
    measure: Callable[[Subject], float | Measured]
    """The largest error found; raises NotApplicable."""

    def __call__(self, subject: Subject) -> CheckResult:
        """Runs on one CPU thread's worth of small tensors; never raises because of the method."""
        try:
            found = self.measure(subject)
        except NotApplicable as e:
            return CheckResult(self.name, "n/a", None, self.tolerance, str(e))
        except Exception as e:
            return CheckResult(self.name, "fail", inf, self.tolerance, f"{type(e).__name__}: {e}")
        found = found if isinstance(found, Measured) else Measured(found)
        good = isfinite(found.error) and found.error <= self.tolerance
        reason = found.remark if found.remark or good else f"Asserted: {self.asserts}"
        return CheckResult(self.name, "pass" if good else "fail", found.error, self.tolerance, reason)


def check(name: str, tolerance: float) -> Callable[[Callable[[Subject], float | Measured]], Check]:
    """Makes a `Check` of a measurement; its docstring's first line says what is asserted."""
    return lambda measure: Check(name, measure.__doc__.strip().split("\n")[0], tolerance, measure)


def gap(a: Tensor, b: Tensor) -> float:
    """The largest difference; infinite where either is not finite."""
    if a.shape != b.shape:
        raise ValueError(f"got tensors of shapes {tuple(a.shape)} and {tuple(b.shape)}, which should agree")
    if a.numel() == 0:
        return 0.0
    worst = (a.double() - b.double()).abs().max().item()
    return worst if isfinite(worst) and bool(torch.isfinite(a).all()) else inf


def require_causal(subject: Subject) -> None:
    """Refuses methods that attend in both directions."""
    if not subject.fresh().pattern.causal:
        raise NotApplicable("attends in both directions, so later tokens count and nothing can be decoded from a cache")
