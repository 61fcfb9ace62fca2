"""The conformance suite: what every method must satisfy, registered or an author's own, with the measured errors."""

from .check import Check, CheckResult, Measured, NotApplicable, check
from .oracle import oracle
from .subject import Subject, cases, subject
from .suite import CHECKS, check_method, check_scheme, parametrize_with_checks, run

__all__ = [
    "CHECKS",
    "Check",
    "CheckResult",
    "Measured",
    "NotApplicable",
    "Subject",
    "cases",
    "check",
    "check_method",
    "check_scheme",
    "oracle",
    "parametrize_with_checks",
    "run",
    "subject",
]
