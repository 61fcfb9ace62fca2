"""Running the checks: on a registered method, on an author's scheme, in pytest."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lengthen.core import Scheme, Shape
from lengthen.core.errors import unknown

from . import decoding, parity, precision, reach, state
from .check import Check, CheckResult
from .subject import Subject, subject

CHECKS: dict[str, Check] = {
    c.name: c
    for c in (
        decoding.cached_chunks,
        decoding.prefix,
        decoding.left_padding,
        decoding.right_padding,
        decoding.packed,
        decoding.batch_mates,
        decoding.position_gaps,
        reach.shift,
        state.repeatability,
        state.independence,
        parity.backends,
        state.gradients,
        precision.precision,
        state.save_load,
        reach.far,
        state.meta,
    )
}
"""Every check by name."""


def choose_checks(names: Iterable[str | Check] | None) -> list[Check]:
    """The named checks, or all; a `Check` of your own stands for itself."""
    if names is None:
        return list(CHECKS.values())
    return [n if isinstance(n, Check) else _named(n) for n in names]


def _named(name: str) -> Check:
    if name not in CHECKS:
        raise unknown("check", name, CHECKS)
    return CHECKS[name]


def check_method(
    spec: str, *, options: Mapping[str, Any] | None = None, seed: int = 0, checks: Iterable[str | Check] | None = None
) -> list[CheckResult]:
    """Runs the suite on a registered method, or on a composition such as `rope+window:tokens=8`.

    options: of the last method of the spec. seed: of parameters, texts and chunk sizes. checks: names from `CHECKS`,
    or your own; None: all. A method that acts on another encoding is put onto RoPE. Raises UsageError for unknown names;
    a method that breaks gives a result with status 'fail', not an exception.
    """
    return run(subject(spec, options, seed), checks)


def check_scheme(
    make_scheme: Callable[[Shape], Scheme],
    *,
    name: str = "scheme",
    limited: bool = False,
    seed: int = 0,
    checks: Iterable[str | Check] | None = None,
) -> list[CheckResult]:
    """Runs the suite on schemes that `make_scheme` makes for a shape: a method that is not registered yet.

    limited: a LengthError beyond `shape.train_length` is an answer.
    """
    return run(Subject(name, make_scheme, seed, limited), checks)


def run(subject: Subject, checks: Iterable[str | Check] | None = None) -> list[CheckResult]:
    """The results of the checks on a subject, in order."""
    return [check(subject) for check in choose_checks(checks)]
