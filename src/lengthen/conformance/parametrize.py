"""pytest: one test per check, on methods, on anybody's models and on bare encodings; expected failures are data."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn

from lengthen.core.errors import UsageError, unknown

from .adapters.models import carrier
from .check import Check as MethodCheck
from .model import check as model_checks
from .model.subject import Subject as ModelSubject
from .model.suite import CHECKS as MODEL_CHECKS
from .model.suite import model_subject
from .module.check import applicable
from .module.subject import ModuleSubject
from .module.suite import module_subject
from .subject import cases
from .suite import choose_checks

Pair = tuple[Any, Callable[[Any], Any]]
"""A subject, and a check that gives something with `confirm()` when it is called with it."""


def parametrize_with_checks(
    *targets: Any,
    seed: int = 0,
    checks: Iterable[str | MethodCheck] | None = None,
    expected: Mapping[str, str] | None = None,
):
    """A pytest decorator: one test per target, variant and check. Without targets, every registered method.

    targets: specs of methods such as `rope+window`; models of transformers or x-transformers, a Decoder, a Subject; encodings;
    classes or functions without arguments that make a model or an encoding. checks: names; None: all that apply.
    expected: check -> why it fails. Such a test must fail: one that passes is reported, so that the list stays true.

    @parametrize_with_checks("mine", make_my_model, MyEncoding, expected={"position_gaps": "borders follow positions"})
    def test_mine(subject, check):
        check(subject).confirm()
    """
    import pytest

    wanted = None if checks is None else list(checks)
    pairs = [pair for target in (targets if targets else (None,)) for pair in pairs_of(target, seed, wanted)]
    known = dict(expected) if expected is not None else {}
    for name in known:
        if name not in {c.name for _, c in pairs}:
            raise unknown("check", name, {c.name for _, c in pairs})
    marks = lambda c: [pytest.mark.xfail(reason=known[c.name], strict=True)] if c.name in known else []
    values = [pytest.param(s, c, marks=marks(c), id=f"{s.name}-{c.name}") for s, c in pairs]
    return pytest.mark.parametrize(("subject", "check"), values)


def pairs_of(target: Any, seed: int = 0, checks: list[str | MethodCheck] | None = None) -> list[Pair]:
    """The subjects of a target with the checks that apply to each. None: every registered method."""
    if target is None or isinstance(target, str):
        names = None if target is None else [target]
        return [(s, c) for s in cases(names, seed) for c in choose_checks(checks)]
    subject = subject_of(target, seed)
    here = applicable(subject) if isinstance(subject, ModuleSubject) else MODEL_CHECKS
    if checks is not None and not all(isinstance(c, str) for c in checks):
        raise UsageError("Checks of models and encodings are chosen by name.")
    return [(subject, c) for c in model_checks.chosen(here, checks if checks is not None else ())]


def subject_of(target: Any, seed: int = 0) -> ModelSubject | ModuleSubject:
    """The subject of a model, of an encoding, or of what a function without arguments makes."""
    if isinstance(target, ModelSubject | ModuleSubject):
        return target
    if not isinstance(target, type | nn.Module) and callable(target):
        made = target()
        if isinstance(made, ModelSubject | ModuleSubject):
            return made
        if carrier(made) is not None:
            return model_subject(made, getattr(target, "__name__", None))
    return model_subject(target) if carrier(target) is not None else module_subject(target, seed=seed)
