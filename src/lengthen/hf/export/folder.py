"""export(): an extended model as a folder that transformers loads without us, or, where that cannot be, one that `load` opens."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from lengthen.core import UsageError
from lengthen.models.store import atomic_folder

from ..extend import Extension
from .plan import Plan, planned
from .record import about, write_record


@dataclass(frozen=True)
class Exported:
    """What was written."""

    folder: Path
    plan: Plan
    """In which form, and what was proven of it."""
    tokens: int
    """The length that it is meant for."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        plan = self.plan
        names = {"all" if kind is None else kind: name for kind, name in plan.rope_types.items()}
        about = {"folder": str(self.folder), "form": plan.form, "tokens": self.tokens, "rope_types": names}
        return about | {"gap": plan.gap, "why": plan.why}

    def __str__(self) -> str:
        return f"{self.folder}: {self.plan}"


def export(
    extension: Extension, folder: str | Path, *, tokenizer: PreTrainedTokenizerBase | None = None, form: str | None = None
) -> Exported:
    """Writes an extended model to a new folder, whole or not at all: config.json, safetensors, generation settings, tokenizer.

    form: 'vanilla', 'lengthen', or None for the first that is possible. Vanilla writes frequencies that no length changes as
        rope_parameters, under the first name whose arithmetic in transformers gives them, else as 'longrope' with equal factors.

    Before anything is written, transformers' own rotary module has to repeat the extended model's logits. Raises UsageError
    for a folder that holds something, Refusal with the reason where the form cannot be had.
    """
    folder = require_free(folder)
    plan = planned(extension, form)
    entries = about(extension, plan.why) if plan.form == "lengthen" else None
    with atomic_folder(folder, "the model") as partial:
        if entries is not None:
            write_record(partial, entries, extension)
        write_model(partial, extension, plan.config, tokenizer)
    return Exported(folder, plan, extension.tokens)


def require_free(folder: str | Path) -> Path:
    """Refuses a place that holds something: an export replaces nothing."""
    folder = Path(folder).expanduser()
    if folder.is_dir() and not any(folder.iterdir()):
        return folder
    if folder.exists():
        what = f"holds {len(list(folder.iterdir()))} files" if folder.is_dir() else "is a file"
        raise UsageError(f"{folder} {what}, and an export replaces nothing. Name a folder that is not there yet, or empty it.")
    return folder


def write_model(
    folder: Path, extension: Extension, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase | None
) -> None:
    """save_pretrained under another configuration, and the tokenizer with the length that can now be read."""
    with _swapped(extension.model, "config", config):
        extension.model.save_pretrained(folder)
    if tokenizer is not None:
        with _swapped(tokenizer, "model_max_length", extension.tokens):
            tokenizer.save_pretrained(folder)


@contextmanager
def _swapped(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
