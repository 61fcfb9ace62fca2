"""The registry: every file of `lengthen.methods` (and every `lengthen.methods` entry point) is discovered, none is listed."""

import ast
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module, metadata
from pkgutil import iter_modules
from typing import Any

from .errors import UsageError, require_count, unknown
from .scheme import Scheme, compose


@dataclass(frozen=True)
class Shape:
    """What a method may want to know of the model. Factories receive those fields that they name as parameters."""

    heads: int = 4
    """Query heads."""
    groups: int = 4
    """Key/value heads."""
    head_size: int = 16
    """Channels per head."""
    width: int = 64
    """Channels of the residual stream."""
    train_length: int = 128
    """Tokens per training sequence."""

    def __post_init__(self):
        for f in fields(self):
            require_count("Shape", f.name, getattr(self, f.name), "tokens" if f.name == "train_length" else "channels or heads")
        if self.heads % self.groups:
            raise UsageError(
                f"{self.heads} query heads cannot share {self.groups} key/value heads evenly; use a divisor of {self.heads}."
            )


@dataclass(frozen=True)
class Option:
    """A parameter of a method that the user may set."""

    name: str
    default: Any
    doc: str


@dataclass(frozen=True)
class Method:
    """A registered method: a factory of schemes, and the facts that cannot be computed from one."""

    name: str
    factory: Callable[..., Scheme]
    family: str
    """Where the survey (arXiv:2312.17044) would put it: 'absolute', 'additive bias', 'rotary', ..."""
    paper: str | None
    """arXiv identifier."""
    modifies: bool = False
    """Acts on another encoding (a window, a temperature): alone, it acts on a model without positions."""
    variants: tuple[Mapping[str, Any], ...] = field(default=())
    """Option sets that the conformance suite covers besides the defaults."""
    limited: bool = False
    """Has no answer beyond its table, and says so with a LengthError."""

    @property
    def summary(self) -> str:
        return inspect.getdoc(self.factory).split("\n")[0]

    @property
    def options(self) -> tuple[Option, ...]:
        own = {f.name for f in fields(Shape)}
        params = inspect.signature(self.factory).parameters.values()
        return tuple(Option(p.name, p.default, self._doc(p.name)) for p in params if p.name not in own)

    def _doc(self, name: str) -> str:
        found = re.search(rf"^\s*{name}: (.+(?:\n {{2,}}\S.*)*)", inspect.getdoc(self.factory) or "", re.M)
        return " ".join(found.group(1).split()) if found else ""

    def build(self, shape: Shape, **options: Any) -> Scheme:
        """A fresh scheme for a model of `shape`."""
        known = {o.name: o for o in self.options}
        for name, value in options.items():
            if name not in known:
                raise unknown(f"option of {self.name}", name, known)
            _require_kind(self.name, known[name], value)
        wanted = inspect.signature(self.factory).parameters
        given = {f.name: getattr(shape, f.name) for f in fields(Shape) if f.name in wanted}
        return self.factory(**given, **options)


def _require_kind(owner: str, option: Option, value: Any) -> None:
    """Refuses what is not a truth value where the default is one, and what is not a number where the default is one: a
    word would count as true, and infinity would become a table of nan. Other defaults say nothing of the kind."""
    if isinstance(option.default, bool):
        if not isinstance(value, bool):
            raise UsageError(f"The {option.name!r} of {owner} must be True or False, got {value!r}.")
    elif isinstance(option.default, int | float) and not _is_finite(value):
        raise UsageError(f"The {option.name!r} of {owner} must be a finite number, such as {option.default}, got {value!r}.")


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except (TypeError, ValueError, OverflowError):
        return False


_METHODS: dict[str, Method] = {}
_COMMA = re.compile(r",(?![^()\[\]]*[)\]])")
"""Commas outside brackets, so that an option may be a tuple: `bipe:separators=(10,46)`."""


def method(name: str, *, family: str, paper: str | None = None, **facts: Any):
    """Registers a factory `(shape fields, options with defaults) -> Scheme` under `name`.

    The docstring's first line is the summary; lines `option: text` describe the options.
    """

    def register(factory: Callable[..., Scheme]) -> Callable[..., Scheme]:
        origin = lambda f: (f.__module__, f.__qualname__)
        if name in _METHODS and origin(_METHODS[name].factory) != origin(factory):
            raise UsageError(f"Two methods are named {name!r}: {_METHODS[name].factory} and {factory}. Rename one.")
        _METHODS[name] = Method(name, factory, family, paper, **facts)
        return factory

    return register


@cache
def _discover() -> None:
    package = import_module("lengthen.methods")
    for module in iter_modules(package.__path__):
        import_module(f"lengthen.methods.{module.name}")
    for point in metadata.entry_points(group="lengthen.methods"):
        point.load()


def methods() -> dict[str, Method]:
    """Every registered method by name, sorted."""
    _discover()
    return dict(sorted(_METHODS.items()))


def get(name: str) -> Method:
    """The method of that name; hyphens and capitals do not matter. Near names are listed where there is none."""
    plain = name.strip().lower().replace("-", "_")
    known = methods()
    if plain not in known:
        raise unknown("method", name, known)
    return known[plain]


def parse(spec: str) -> list[tuple[Method, dict[str, Any]]]:
    """`rope:base=1e6+alibi+window:tokens=64` -> the methods with their options."""
    found = [_parse_part(p, spec) for p in _parts(spec)]
    for n, (method, options) in enumerate(found):
        if (method, options) in found[:n]:
            raise UsageError(f"The spec {spec!r} holds {method.name} twice, with the same options. Give it once.")
    return found


def _parts(spec: str) -> list[str]:
    """Cut at each + that does not belong to a number such as 1e+6."""
    return re.split(r"\+(?![0-9])", spec)


def _parse_part(part: str, spec: str) -> tuple[Method, dict[str, Any]]:
    name, _, settings = part.partition(":")
    if not name.strip():
        raise UsageError(f"The method spec {spec!r} has an empty part. Write it as in 'rope:base=1e6+window:tokens=64'.")
    options = {}
    for setting in filter(None, _COMMA.split(settings)):
        key, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"The option {setting!r} in {spec!r} has no value. Write it as in 'rope:base=1e6'.")
        key = key.strip().replace("-", "_")
        if key in options:
            raise UsageError(f"The option {key!r} is given twice in {spec!r}. Give it once.")
        options[key] = _value(value.strip())
    return get(name), options


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def canonical(spec: str) -> str:
    """The spec with the registered names: `ALiBi` is `alibi`, `p-rope` is `p_rope`. Options stay as they are written."""
    settings = (part.partition(":")[1:] for part in _parts(spec))
    return "+".join(m.name + colon + text for (m, _), (colon, text) in zip(parse(spec), settings, strict=True))


def build(spec: str, shape: Shape | None = None) -> Scheme:
    """A fresh scheme from a spec such as `rope`, `kerple:kernel=power` or `rope+window:tokens=64`."""
    shape = shape if shape is not None else Shape()
    schemes = [m.build(shape, **options) for m, options in parse(spec)]
    return schemes[0] if len(schemes) == 1 else compose(*schemes)


def build_layers(specs: Sequence[str], layers: int, shape: Shape) -> list[Scheme]:
    """One scheme per layer: a single spec is shared by all layers, several are repeated in turn, one instance per spec."""
    if not specs:
        raise UsageError(f"No method was given for {layers} layers. Give one spec for all of them, or several to take in turn.")
    made = [build(s, shape) for s in specs]
    return [made[n % len(made)] for n in range(layers)]
