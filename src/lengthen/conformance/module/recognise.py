"""What kind of encoding an object is: by a declared adapter, else by the names of its parameters."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lengthen.core.errors import UsageError, unknown

from ..adapters import ADAPTERS
from ..adapters.ports import BiasAtPositions, BiasOfSizes, BiasPort, CosSin, EmbeddingPort, EmbedsPositions, RotaryPort, Rotates

Port = RotaryPort | BiasPort | EmbeddingPort


@dataclass(frozen=True)
class Signature:
    """A method that says what an object is."""

    kind: str
    method: str
    parameters: tuple[tuple[str, ...], ...]
    """For each positional parameter, the names it may have."""
    port: Callable[[str], Port]

    def matches(self, found: Any, strict: bool = True) -> bool:
        """Whether the object has the method with those parameters, and demands no others."""
        method = getattr(found, self.method, None)
        if method is None:
            return False
        names = demanded(method)
        fits = len(names) == len(self.parameters)
        return fits and (not strict or all(n in allowed for n, allowed in zip(names, self.parameters, strict=True)))

    def __str__(self) -> str:
        return f"{self.method}({', '.join(names[0] for names in self.parameters)})"


POSITIONS = ("positions", "position", "pos", "position_ids", "t", "idx", "indices")
QUERIES = ("q_positions", "query_positions", "q_pos", "query_pos", "pos_q", "pos_i")
KEYS = ("k_positions", "key_positions", "k_pos", "key_pos", "pos_k", "pos_j")
ROWS = ("i", "q_len", "query_length", "queries", "seq_len_q", "n_q")
COLUMNS = ("j", "k_len", "key_length", "keys", "seq_len_k", "n_k")
TURNED = ("x", "t", "q", "tensor", "hidden_states")
SIGNATURES = (
    Signature("rotary", "rotate", (TURNED, POSITIONS), Rotates),
    Signature("rotary", "forward", (("x",), ("position_ids",)), CosSin),
    Signature("rotary", "forward", (TURNED, POSITIONS), Rotates),
    Signature("bias", "bias", (QUERIES, KEYS), BiasAtPositions),
    Signature("bias", "forward", (QUERIES, KEYS), BiasAtPositions),
    Signature("bias", "bias", (ROWS, COLUMNS), BiasOfSizes),
    Signature("bias", "forward", (ROWS, COLUMNS), BiasOfSizes),
    Signature("embedding", "forward", (POSITIONS,), EmbedsPositions),
)


def demanded(method: Any) -> list[str]:
    """The names of the parameters of a bound method that have no default."""
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = inspect.signature(method).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind in kinds]


def recognise(found: Any, kind: str | None = None) -> Port:
    """The port of an object: that of its class (or of a parent class) in `ADAPTERS`, else that of its signature.

    kind: 'rotary', 'bias' or 'embedding' accepts parameters of any names. Raises UsageError where nothing fits.
    """
    kinds = {s.kind for s in SIGNATURES}
    if kind is not None and kind not in kinds:
        raise unknown("kind of encoding", kind, kinds)
    for parent in type(found).__mro__:
        adapter = ADAPTERS.get(f"{parent.__module__}.{parent.__qualname__}")
        if adapter is not None:
            return adapter(found)
    for signature in SIGNATURES:
        if kind in (None, signature.kind) and signature.matches(found, strict=kind is None):
            return signature.port(signature.method)
    raise _unrecognised(found)


def _unrecognised(found: Any) -> UsageError:
    has = sorted({s.method for s in SIGNATURES} & set(dir(found)))
    seen = "; ".join(f"{m}({', '.join(demanded(getattr(found, m)))})" for m in has)
    return UsageError(
        f"{type(found).__name__} is no encoding that lengthen recognises: it has {seen if seen else 'none of the methods'}. "
        f"Give it one of {', '.join(map(str, dict.fromkeys(map(str, SIGNATURES))))}, or name the kind."
    )
