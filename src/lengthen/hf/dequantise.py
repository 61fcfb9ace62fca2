"""GGUF checkpoints, dequantised once to float32 and kept as safetensors in the user's cache."""

import os
import shutil
import sys
import tempfile
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedModel, PreTrainedTokenizerBase

from lengthen.core import LengthenError, Refusal, UsageError

_ENDS = 2**20
"""Bytes at either end of a file that tell it from others, with its size."""


def dequantised(path: Path) -> Path:
    """The folder that holds a GGUF file as transformers saves a model; made on the first call, or where it is not whole.

    `LENGTHEN_CACHE` names the folder that it is made in (`~/.cache/lengthen`). Processes that convert the same file at
    the same time do not disturb each other.
    """
    folder = cache_folder() / f"{path.stem}-{_digest(path)}"
    if not folder.is_dir():
        _require_reader(path)
        print(
            f"Converting {path.name} ({path.stat().st_size / 1e6:.0f} MB) to safetensors, once; it takes up to a minute. Kept in {folder}",
            file=sys.stderr,
        )
        _convert(path, folder)
    return folder


def cache_folder() -> Path:
    """Where converted checkpoints are kept."""
    home = os.environ.get("LENGTHEN_CACHE")
    return (Path(home) if home else Path.home() / ".cache" / "lengthen") / "gguf"


def _digest(path: Path) -> str:
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_ENDS)
        file.seek(max(size - _ENDS, 0))
        return blake2b(head + file.read(_ENDS) + str(size).encode(), digest_size=8).hexdigest()


def _require_reader(path: Path) -> None:
    """Refuses a file that is no GGUF, and one whose scaling of frequencies transformers would silently leave out."""
    if find_spec("gguf") is None:
        raise UsageError(f"{path.name} is read with the package 'gguf', which is not installed. Run: pip install gguf")
    with path.open("rb") as file:
        start = file.read(4)
    if start != b"GGUF":
        raise UsageError(f"{path} is no GGUF file: it begins with {start!r} and not with b'GGUF'.")
    from gguf import GGUFReader

    reader = GGUFReader(path)
    scaled = [key for key in reader.fields if ".rope.scaling." in key and reader.fields[key].contents() != "none"]
    scaled += [tensor.name for tensor in reader.tensors if tensor.name.startswith(("rope_freqs", "rope_factors"))]
    if scaled:
        raise Refusal(
            f"{path.name} scales its frequencies ({', '.join(scaled[:3])}), which the GGUF reader of transformers leaves out, so the "
            "model would be another one. Take the checkpoint in safetensors."
        )


def _convert(path: Path, folder: Path) -> None:
    """Written beside its place and renamed, so that a folder that is there is whole."""
    model, tokenizer = _read(path)
    partial = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        partial.rename(folder)
    except OSError as error:
        # Another process may have been faster; its folder is as good.
        if not folder.is_dir():
            raise LengthenError(f"Could not write the converted {path.name} to {folder}: {error}.") from error
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)


def _read(path: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    source = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    # Unless asked to dequantise, transformers calls the model quantised and refuses to save it.
    whole = {"dtype": torch.float32, "quantization_config": GgufConfig(dequantize=True)}
    try:
        model = AutoModelForCausalLM.from_pretrained(**source, **whole)
        tokenizer = AutoTokenizer.from_pretrained(**source)
    except Exception as error:  # the readers of models and tokenizers share no base class
        reason = " ".join(str(error).split()).rstrip(".")
        raise UsageError(f"{path.name} could not be read: {reason}. Take the checkpoint in safetensors.") from error
    # GGUF tokenizers come without a limit, 1e30.
    tokenizer.model_max_length = model.config.max_position_embeddings
    return model, tokenizer
