"""The register of the checks of bare encodings. The theme of a check is the kind of encoding that it is for."""

from ..model.check import Check, NotApplicable, registering
from ..model.verdict import Measured, worst
from .subject import ModuleSubject

__all__ = ["CHECKS", "Measured", "NotApplicable", "applicable", "module_check", "worst"]

EVERY = "every kind"
CHECKS: list[Check] = []
"""In the order in which they were written."""
module_check = registering(CHECKS)


def applicable(subject: ModuleSubject) -> list[Check]:
    """The checks of a subject's kind."""
    return [c for c in CHECKS if c.theme in (EVERY, subject.kind)]
