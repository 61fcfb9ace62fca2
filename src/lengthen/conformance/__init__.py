"""The conformance suite: what every method must satisfy, registered or an author's own, with the measured errors.

The same for other people's work: `check_model` for whole models, `check_module` for bare encodings.
"""

from .check import Check, CheckResult, Measured, NotApplicable, check
from .model.suite import check_model
from .model.verdict import Report, Verdict
from .module import check_module
from .oracle import oracle
from .parametrize import parametrize_with_checks
from .subject import Subject, cases, subject
from .suite import CHECKS, check_method, check_scheme, run

__all__ = [
    "CHECKS",
    "Check",
    "CheckResult",
    "Measured",
    "NotApplicable",
    "Report",
    "Subject",
    "Verdict",
    "cases",
    "check",
    "check_method",
    "check_model",
    "check_module",
    "check_scheme",
    "oracle",
    "parametrize_with_checks",
    "run",
    "subject",
]
