"""A server as others see it: what it needs to know of a checkpoint, and the flags that tell it."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lengthen.core import Refusal

from .native import Parameters
from .static import Static


@dataclass(frozen=True)
class Served:
    """A checkpoint with one spectrum for all layers, as it is to be served."""

    static: Static
    parameters: Parameters
    """rope_parameters under which transformers computes the spectrum."""
    model_type: str
    scaled: str | None
    """rope_type of the checkpoint's own frequencies, where they are scaled already."""


@dataclass(frozen=True)
class Server:
    """One program, in one version."""

    name: str
    version: str
    """Whose source was read."""
    command: tuple[str, ...]
    arguments: Callable[[Served], list[str]]
    """Raises Refusal where the server cannot be told."""


@dataclass(frozen=True)
class ServerFlags:
    """How one server is to be told."""

    server: Server
    arguments: tuple[str, ...]
    """Empty where it cannot be told."""
    why: str | None
    """Why it cannot; None where it can."""

    def __str__(self) -> str:
        told = shlex.join((*self.server.command, *self.arguments)) if self.why is None else f"no: {self.why}."
        return f"{self.server.name} {self.server.version}: {told}"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        about = {"server": self.server.name, "version": self.server.version, "command": list(self.server.command)}
        return about | {"arguments": list(self.arguments), "why": self.why}


def require_read(served: Served, server: str, models: frozenset[str]) -> None:
    """Refuses model types whose code in that server was not read, or does not hand scaled frequencies on."""
    if served.model_type not in models:
        raise Refusal(
            f"its code for models of type {served.model_type!r} was not read, or does not pass scaled frequencies on; "
            f"read for {server}: {', '.join(sorted(models))}"
        )
