"""lengthen.json: what to change in the checkpoint beside it, in words that are checked before anything is done."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel

import lengthen
from lengthen.core import Refusal, UsageError, parse
from lengthen.core.errors import require_count, unknown
from lengthen.core.registry import canonical
from lengthen.models.store import read_json, read_tensors, require_fit, write_tensors

from ..route import ROUTES

if TYPE_CHECKING:
    from ..extend import Extension

RECORD, WEIGHTS = "lengthen.json", "lengthen.safetensors"
"""The record, and what the schemes themselves have learned, where they have."""
FORMAT = 1
ENTRIES = {"format", "method", "tokens", "original", "route", "why", "written_by"}


@dataclass(frozen=True)
class Record:
    """How to extend the checkpoint again."""

    method: str | dict[str, str | None]
    """A spec, or one per layer type (None: as it is)."""
    tokens: int | list[int] | None
    """The length that was asked for, or one for each row; None: none was."""
    original: int | None
    """The trained length, where it was said."""
    route: str | None

    def __post_init__(self):
        specs = self.method.values() if isinstance(self.method, Mapping) else [self.method]
        if not isinstance(self.method, str | Mapping) or not all(spec is None or isinstance(spec, str) for spec in specs):
            raise UsageError(f"{RECORD} names a method by a spec, or one per layer type, got {self.method!r}.")
        for spec in specs:
            if spec is not None:
                parse(spec)
        lengths = self.tokens if isinstance(self.tokens, list) else [self.tokens]
        for name, value in [("original", self.original), *(("tokens", n) for n in lengths)]:
            if value is not None:
                require_count(RECORD, name, value, "tokens")
        if self.route is not None and self.route not in ROUTES:
            raise unknown("route", str(self.route), ROUTES)


def about(extension: "Extension", why: str) -> dict[str, Any]:
    """What was asked for, as plain values. Raises Refusal for schemes that no spec names."""
    return {
        "format": FORMAT,
        "method": _spec(extension.request),
        "tokens": extension.asked if extension.asked is None or isinstance(extension.asked, int) else list(extension.asked),
        "original": extension.original_asked,
        "route": extension.route_asked,
        "why": why,
        "written_by": {"lengthen": lengthen.__version__, "transformers": transformers.__version__, "torch": torch.__version__},
    }


def write_record(folder: Path, entries: Mapping[str, Any], extension: "Extension") -> None:
    """Writes what was asked for, and what the schemes have learned."""
    (folder / RECORD).write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
    learned = _learned(extension.schemes)
    if learned:
        write_tensors(folder / WEIGHTS, learned)


def read_record(folder: Path) -> Record | None:
    """The record of a folder, checked; None where it has none. Raises UsageError for what is damaged, unknown or no spec."""
    if not (folder / RECORD).exists():
        return None
    found = read_json(folder / RECORD)
    version = found.get("format")
    if version != FORMAT:
        raise UsageError(
            f"{folder / RECORD} is in format {version!r}, and this is lengthen {lengthen.__version__}, which reads format {FORMAT}. "
            f"It was written by {found.get('written_by')}; install that version, or export again."
        )
    for entry in sorted(found.keys() - ENTRIES):
        raise unknown(f"entry of {RECORD}", entry, ENTRIES)
    return Record(*(found.get(entry) for entry in ("method", "tokens", "original", "route")))


def reopened(model: PreTrainedModel, record: Record, folder: Path) -> "Extension":
    """Extends the checkpoint as the record says, with what the schemes had learned."""
    from ..extend import extend

    for tensor in model.state_dict(keep_vars=True).values():
        # Fresh memory: a file's tensors are not aligned, and sums of floats depend on the alignment.
        tensor.data = tensor.data.clone()
    extension = extend(model, record.method, tokens=record.tokens, original=record.original, route=record.route)
    wanted = _learned(extension.schemes)
    if wanted:
        found = read_tensors(folder / WEIGHTS)
        require_fit(found, wanted, folder / WEIGHTS)
        for name, tensor in wanted.items():
            tensor.data.copy_(found[name])
    return extension


def _spec(request: Any) -> str | dict[str | None, str | None]:
    if isinstance(request, str):
        return canonical(request)
    if isinstance(request, Mapping):
        # One spectrum for all layers has no name that JSON could hold.
        return (
            _spec(request[None])
            if None in request
            else {kind: None if spec is None else _spec(spec) for kind, spec in request.items()}
        )
    raise Refusal(
        f"{RECORD} names methods by their specs, and this model was extended by a {type(request).__name__}. Register it with "
        "@lengthen.method and extend by its name."
    )


def _learned(schemes: Mapping[str | None, nn.Module]) -> dict[str, Tensor]:
    """What the schemes hold, by layer type and name."""
    return {f"{kind}.{name}": t for kind, s in schemes.items() for name, t in s.state_dict(keep_vars=True).items()}
