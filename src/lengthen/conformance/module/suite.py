"""Running the checks on a bare encoding."""

from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Any

import torch
from torch import nn

from lengthen.core import Scheme
from lengthen.core.errors import UsageError

from ..model.check import chosen, judge
from ..model.verdict import Report
from . import bias, embedding, rotary, state  # noqa: F401 (they register their checks)
from .check import applicable
from .recognise import recognise
from .subject import ModuleSubject, fresh_copies, seeded


def module_subject(found: Any, *, kind: str | None = None, name: str | None = None, seed: int = 0) -> ModuleSubject:
    """The subject of a class, of a function that makes an encoding, or of an instance (which stays as it is)."""
    built = isinstance(found, type) or not (isinstance(found, nn.Module) or _is_recognised(found, kind))
    label = name if name is not None else getattr(found, "__name__", type(found).__name__)
    if built and not callable(found):
        recognise(found, kind)
    make = seeded(found, seed) if built else fresh_copies(found)
    try:
        first = make()
    except TypeError as e:
        if not built:
            raise
        raise UsageError(f"{label} cannot be made without arguments ({e}). Give a function that makes one.") from e
    if isinstance(first, Scheme):
        raise UsageError(f"{label} makes a Scheme. Check it with lengthen.conformance.check_scheme.")
    return ModuleSubject(label, make, recognise(first, kind), built, seed)


def _is_recognised(found: Any, kind: str | None) -> bool:
    try:
        recognise(found, kind)
    except UsageError:
        return False
    return True


def check_module(
    found: Any,
    *,
    kind: str | None = None,
    name: str | None = None,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    expected: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Report:
    """Runs the checks of its kind on a rotary encoding, an additive bias or an embedding of positions.

    found: a class without required arguments, a function that makes one, or an instance. It is recognised by a declared
    adapter (classes of x-transformers and rotary-embedding-torch) or by its signature: `rotate(x, positions)`,
    `bias(q_positions, k_positions)`, `bias(i, j)` or `forward(i, j)` in sizes, `forward(positions)`.
    kind: 'rotary', 'bias' or 'embedding', where the parameters have other names. expected: check -> why it fails; such a
    failure does not count. Raises UsageError for what is recognised as no encoding; a check that breaks is a verdict.
    """
    subject = module_subject(found, kind=kind, name=name, seed=seed)
    checks = chosen(applicable(subject), only, skip, expected)
    known = expected if expected is not None else {}
    return Report(subject.name, tuple(judge(c, subject, known.get(c.name)) for c in checks), versions(subject.make()))


def versions(made: Any) -> dict[str, str]:
    """PyTorch and the library that the encoding comes from, where it is an installed one."""
    home = type(made).__module__.split(".")[0]
    owners = metadata.packages_distributions().get(home, [])
    return {"torch": torch.__version__, **{name: metadata.version(name) for name in owners[:1]}}
