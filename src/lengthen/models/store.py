"""Decoders on disk: `config.json` and `model.safetensors`, written whole or not at all, read without unpickling anything."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import lengthen
from lengthen.core import LengthenError, UsageError

from .decoder import Decoder, DecoderConfig
from .presets import make_decoder

_CONFIG, _WEIGHTS = "config.json", "model.safetensors"


def save_decoder(folder: str | Path, model: Decoder, specs: Sequence[str], train_length: int, seed: int) -> None:
    """Writes a model, and what `make_decoder` needs to build its like, to `folder`; a decoder already there is replaced.

    Shared weights (tied embeddings, a scheme of many layers) are written once. Raises LengthenError where the disk refuses,
    and leaves what was there whole.
    """
    about = {
        "lengthen": lengthen.__version__,
        "sizes": asdict(model.config),
        "specs": list(specs),
        "train_length": train_length,
        "seed": seed,
    }
    with atomic_folder(folder, "the model") as partial:
        (partial / _CONFIG).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        write_tensors(partial / _WEIGHTS, unique_tensors(model))


def load_decoder(folder: str | Path) -> Decoder:
    """The decoder that `save_decoder` wrote, in evaluation mode, on the CPU, in the types it was saved in.

    Raises UsageError for a file that is missing or damaged, and for weights that do not fit `config.json`.
    """
    folder = Path(folder)
    settle(folder)
    about = read_json(folder / _CONFIG)
    try:
        sizes = DecoderConfig(**about["sizes"])
        model = make_decoder(sizes, about["specs"], about["train_length"], about["seed"])
    except (KeyError, TypeError) as error:
        raise UsageError(f"{folder / _CONFIG} does not describe a decoder of this version of lengthen: {error}.") from error
    tensors = read_tensors(folder / _WEIGHTS)
    require_fit(tensors, unique_tensors(model), folder / _WEIGHTS)
    put(tensors, model)
    return model.eval()


def unique_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name; what several names share appears once, under the first."""
    seen: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        seen.setdefault(id(tensor), (name, tensor))
    return dict(seen.values())


def put(tensors: Mapping[str, Tensor], model: nn.Module) -> None:
    """Replaces the values of a model's tensors, types included; what was shared stays shared.

    Copied into fresh memory: a file's tensors are not aligned, and sums of floats depend on the alignment.
    """
    for name, tensor in unique_tensors(model).items():
        tensor.data = tensors[name].to(tensor.device, copy=True)


def require_fit(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], path: Path) -> None:
    """Refuses tensors whose names or shapes differ from those of `wanted`."""
    missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    if missing or extra:
        lists = [f"{what} {', '.join(names[:4])}{', ...' if len(names) > 4 else ''}"
                 for what, names in (("lacks", missing), ("has, unasked,", extra)) if names]  # fmt: skip
        raise UsageError(f"{path} is of another model: it {' and '.join(lists)}.")
    for name, tensor in wanted.items():
        if found[name].shape != tensor.shape:
            raise UsageError(
                f"{path} is of another model: {name} is {tuple(found[name].shape)} there and {tuple(tensor.shape)} here."
            )


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a safetensors file."""
    save_file({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, path)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the CPU; UsageError where it is missing or damaged."""
    _require_file(path)
    try:
        return load_file(path)
    except SafetensorError as error:
        raise UsageError(f"{path} ({path.stat().st_size} bytes) is damaged or no safetensors file: {error}.") from error


def read_json(path: Path) -> dict:
    """The object in a JSON file; UsageError where it is missing or damaged."""
    _require_file(path)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is damaged: {error}.") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} is damaged: it holds a {type(found).__name__}, not an object.")
    return found


def _require_file(path: Path) -> None:
    if path.is_file():
        return
    there = sorted(p.name for p in path.parent.iterdir()) if path.parent.is_dir() else None
    held = "the folder does not exist" if there is None else f"the folder holds {', '.join(there[:8]) or 'nothing'}"
    raise UsageError(f"There is no {path.name} in {path.parent}: {held}.")


@contextmanager
def atomic_folder(folder: str | Path, what: str) -> Iterator[Path]:
    """Yields an empty folder beside `folder` that takes its place when the block ends well.

    Killed at any moment, the old folder or the new one is whole: at its place, or where `settle` finds it. Where the disk
    refuses (full, read-only), raises LengthenError that names `what`, and the old folder stays.
    """
    folder = Path(folder)
    partial, previous = _beside(folder, "partial"), _beside(folder, "previous")
    try:
        settle(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        for path in (*partial.iterdir(), partial):
            _sync(path)
        if folder.exists():
            folder.rename(previous)
        partial.rename(folder)
        _sync(folder.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        settle(folder)
        kept = "What was there before is whole." if folder.exists() else "Nothing was written."
        raise LengthenError(f"Could not write {what} to {folder}: {error}. {kept}") from error
    except Exception:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    shutil.rmtree(previous, ignore_errors=True)


def settle(folder: Path) -> None:
    """Ends an interrupted `atomic_folder`: puts the previous folder back where the new one never came."""
    previous = _beside(folder, "previous")
    if previous.exists() and not folder.exists():
        previous.rename(folder)
    elif previous.exists():
        shutil.rmtree(previous, ignore_errors=True)


def _beside(folder: Path, role: str) -> Path:
    return folder.with_name(f".{folder.name}.{role}")


def _sync(path: Path) -> None:
    """Asks the disk to keep a file or a folder's entries."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
