"""Running the checks on a whole model."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from typing import Any

import torch
from torch import nn

from lengthen.core.errors import UsageError

from . import (  # noqa: F401
    alibi,
    decoding,
    generation,
    half,
    layers,
    meta,
    packed,
    reach,
    reload,
    rows,
    settings,
    state,
    tables,
    tokens,
    window,
)
from .check import Check, chosen, judge
from .quiet import quiet
from .register import CHECKS
from .subject import Subject
from .tiny import tiny_model
from .verdict import Report, Verdict

THEMES = ("cache", "generation", "causality", "padding", "batch", "packing", "state", "window", "positions", "precision")
THEMES += ("loading", "settings", "tokenizer")
"""In the order in which the checks run; the modules that are imported above register them."""
CHECKS.sort(key=lambda c: THEMES.index(c.theme))


def model_subject(model: Any, name: str | None = None) -> Subject:
    """The subject of a model: itself where it is one, else by the library that its class comes from."""
    if isinstance(model, Subject):
        return model
    from ..adapters.models import wrap

    if not isinstance(model, nn.Module):
        raise UsageError(f"check_model takes a model (a torch module) or a Subject, got {type(model).__name__}.")
    return wrap(model, name)


def is_model(found: Any) -> bool:
    """Whether it is something that `check_model` takes."""
    from ..adapters.models import carrier

    return isinstance(found, Subject) or carrier(found) is not None


def check_model(
    model: Any,
    *,
    tokenizer: Any = None,
    tiny: bool = False,
    name: str | None = None,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    expected: Mapping[str, str] | None = None,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Report:
    """Runs the checks on a causal language model, which stays bit-equal: every check works on copies.

    model: of transformers, of x-transformers, a `lengthen.models.Decoder`, or a `Subject` of your own. tokenizer: to be
    checked at the joins of texts. tiny: check a small random model of the same config instead (a config of transformers
    will do). only, skip: names of checks. expected: check -> why it fails; such a failure does not count. seed: of texts, and
    of the tiny model. progress: called with the name of each check, how many are done, and how many there are.

    A model in half precision is checked in float32, in which differences can be told from rounding; the checks of half
    precision convert it back. Raises UsageError for names that no check has, and for what is no model.
    """
    known = expected if expected is not None else {}
    checks = chosen(CHECKS, only, skip, expected)
    with quiet(), unchanged_mode(model):
        subject = prepared(model_subject(_tiny(model, seed) if tiny else model, name), tokenizer, seed)
        verdicts = _run(subject, checks, known, progress)
    return Report(subject.name, tuple(verdicts), versions(subject.model))


def _run(subject: Subject, checks: list[Check], known: Mapping[str, str], progress: Callable[[str, int, int], None] | None):
    verdicts = []
    for n, check in enumerate(checks):
        if progress is not None:
            progress(check.name, n, len(checks))
        verdicts.append(guarded(check, subject, known.get(check.name)))
    return verdicts


@contextmanager
def unchanged_mode(model: Any) -> Iterator[None]:
    """Subjects put models into evaluation mode; afterwards every module is in the mode that it was in."""
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    modes = [m.training for m in modules]
    try:
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode


def _tiny(model: Any, seed: int) -> nn.Module:
    """A small random model of a config of transformers, or of the config of a model."""
    from transformers import PreTrainedConfig, PreTrainedModel

    config = model.config if isinstance(model, PreTrainedModel) else model
    if not isinstance(config, PreTrainedConfig):
        raise UsageError(
            f"Only models of transformers have a config to shrink; {type(model).__name__} is none. Leave out 'tiny'."
        )
    return tiny_model(config, seed)


def prepared(subject: Subject, tokenizer: Any, seed: int) -> Subject:
    """In float32 where it is in half precision, with what the checks need beside the model."""
    half_types = (torch.float16, torch.bfloat16)
    if any(p.dtype in half_types for p in subject.model.parameters()):
        subject = subject.converted(torch.float32)
    subject.tokenizer, subject.seed = tokenizer, seed
    return subject


def guarded(check: Check, subject: Subject, expected: str | None = None) -> Verdict:
    """The verdict of one check; an error where it changed a weight or a setting of the model."""
    before = subject.fingerprint()
    verdict = judge(check, subject, expected)
    if subject.fingerprint() == before:
        return verdict
    reason = f"{check.name} changed the weights or the config of the model that it was given"
    return Verdict(check.name, "error", reason=reason, asserts=check.asserts, meaning=reason, cause="Copies share state.")


def versions(model: nn.Module) -> dict[str, str]:
    """PyTorch, and the installed library that the model comes from."""
    homes = dict.fromkeys(c.__module__.split(".")[0] for c in type(model).__mro__)
    packages = metadata.packages_distributions()
    owner = next((packages[h][0] for h in homes if h in packages and h not in ("torch", "builtins")), None)
    return {"torch": torch.__version__, **({} if owner is None else {owner: metadata.version(owner)})}
