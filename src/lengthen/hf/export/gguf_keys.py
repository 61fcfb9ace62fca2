"""What a GGUF file says of frequencies, in the words of llama.cpp since December 2025 (pull request 18006).

Its kernel turns pair i by p base^(-2i/R) / divisor_i, times 1 / factor where the type is linear; YaRN's ramp is the deployed one,
rounded outwards. The multiplier is attn_factor, times 0.1 ln s + 1 where the type is yarn.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lengthen.core import Refusal
from lengthen.methods.yarn import mscale_of

from .native import Parameters
from .server import Served

TABLES = frozenset(("llama",))
"""Architectures whose files may hold a table of divisors that serves every length."""


@dataclass(frozen=True)
class Keys:
    """Entries, and a table of divisors where they do not suffice."""

    entries: dict[str, Any]
    table: np.ndarray | None
    """float32 [R/2]."""


def keys_for(served: Served, arch: str) -> Keys:
    """Raises Refusal for frequencies that only a table could say, in an architecture that has no place for one."""
    given, static = served.parameters, served.static
    say = _SAID.get(given["rope_type"])
    said = say(given) if say is not None else None
    table = None
    if said is None:
        _require_place(arch, given["rope_type"])
        said, table = {"scaling.type": "none", "scaling.attn_factor": float(static.mscale)}, static.divisors.astype(np.float32)
    base = float(given["rope_theta"]) if table is None else static.base
    entries = {"freq_base": base, **said}
    return Keys({f"{arch}.context_length": static.tokens} | {f"{arch}.rope.{k}": v for k, v in entries.items()}, table)


def _require_place(arch: str, kind: str) -> None:
    if arch not in TABLES:
        raise Refusal(
            f"These frequencies ({kind}) have no entry in a GGUF file, and files of the architecture {arch!r} have no place for a "
            f"table of them, or were not read; read: {', '.join(sorted(TABLES))}."
        )


def _default(given: Parameters) -> dict[str, Any]:
    return {"scaling.type": "none"}


def _linear(given: Parameters) -> dict[str, Any]:
    return {"scaling.type": "linear", "scaling.factor": float(given["factor"])}


def _yarn(given: Parameters) -> dict[str, Any] | None:
    """None for ends of the ramp other than 32 and 1: there are keys for them, which most architectures do not read."""
    if not {"beta_fast", "beta_slow", "truncate"}.isdisjoint(given):
        return None
    default = mscale_of(given["factor"])
    return {
        "scaling.type": "yarn",
        "scaling.factor": float(given["factor"]),
        "scaling.original_context_length": int(given["original_max_position_embeddings"]),
        "scaling.attn_factor": float(given.get("attention_factor", default) / default),
    }


_SAID = {"default": _default, "linear": _linear, "yarn": _yarn}
"""By transformers' rope_type."""
