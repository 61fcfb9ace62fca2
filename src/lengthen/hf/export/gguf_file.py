"""export_gguf(): a copy of a GGUF file that says how llama.cpp is to turn queries and keys; the weights stay as they are."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthen.core import LengthenError, Refusal, UsageError

from ..extend import Extension
from .gguf_keys import Keys, keys_for
from .server import Served
from .servers import spectrum_served, without_flags

if TYPE_CHECKING:
    from gguf import GGUFReader, GGUFWriter

TABLE = "rope_freqs.weight"
"""Divisors of the geometric frequencies, one per pair."""


@dataclass(frozen=True)
class GgufExported:
    """What was written into the copy."""

    file: Path
    entries: dict[str, Any]
    """Keys that say how to turn, with their values."""
    table: np.ndarray | None
    """The divisors that were added, float32 [R/2]; None: entries suffice."""


def export_gguf(extension: Extension, source: str | Path, target: str | Path) -> GgufExported:
    """Copies `source`, a GGUF of the checkpoint that was extended, to `target`, whole or not at all.

    Frequencies that entries can say become entries (base, linear, yarn), others a table of divisors, which files of the
    architecture 'llama' have a place for. Raises Refusal where neither can be, and for a file that scales its frequencies
    already; UsageError for a file of another checkpoint, and for a target that is there.
    """
    source, target = Path(source).expanduser(), Path(target).expanduser()
    served = _served(extension)
    reader = _opened(source)
    arch = _require_same(reader, source, served)
    if target.exists():
        raise UsageError(f"{target} is there already, and an export replaces nothing. Name another file.")
    keys = keys_for(served, arch)
    with _whole(target) as partial:
        _copy(reader, partial, arch, keys)
    return GgufExported(target, keys.entries, keys.table)


def _served(extension: Extension) -> Served:
    why = without_flags(extension)
    if why is not None:
        raise Refusal(f"llama.cpp cannot express this: {why}.")
    return spectrum_served(extension)


def _opened(source: Path) -> "GGUFReader":
    if find_spec("gguf") is None:
        raise UsageError(f"{source.name} is read with the package 'gguf', which is not installed. Run: pip install gguf")
    from gguf import GGUFReader

    if not source.is_file():
        raise UsageError(f"There is no file {source}.")
    try:
        return GGUFReader(source)
    except (ValueError, IndexError) as error:
        raise UsageError(f"{source} is no GGUF file that could be read: {error}.") from error


def _require_same(reader: "GGUFReader", source: Path, served: Served) -> str:
    """The architecture of a file whose sizes are those of the checkpoint, and whose frequencies are not scaled yet."""
    arch = reader.fields["general.architecture"].contents()
    scaled = [key for key, field in reader.fields.items() if ".rope.scaling." in key and field.contents() != "none"]
    scaled += [tensor.name for tensor in reader.tensors if tensor.name.startswith(("rope_freqs", "rope_factors"))]
    if scaled:
        raise Refusal(
            f"{source.name} scales its frequencies already ({', '.join(scaled[:3])}). Take one of the plain checkpoint."
        )
    static = served.static
    facts = {"context_length": static.original, "rope.freq_base": static.base, "rope.dimension_count": static.size}
    for key, wanted in facts.items():
        field = reader.fields.get(f"{arch}.{key}")
        if field is not None and not np.isclose(field.contents(), wanted, rtol=1e-6):
            raise UsageError(
                f"{source.name} is of another checkpoint: its {arch}.{key} is {field.contents()}, and here it is {wanted}."
            )
    return arch


def _copy(reader: "GGUFReader", target: Path, arch: str, keys: Keys) -> None:
    import gguf

    writer = gguf.GGUFWriter(target, arch, endianess=reader.endianess)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture" and name not in keys.entries:
            nested = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=nested)
    for name, value in keys.entries.items():
        {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[type(value)](name, value)
    for tensor in reader.tensors:
        writer.add_tensor_info(tensor.name, tensor.data.shape, tensor.data.dtype, tensor.data.nbytes, tensor.tensor_type)
    if keys.table is not None:
        writer.add_tensor_info(TABLE, keys.table.shape, keys.table.dtype, keys.table.nbytes)
    _write(writer, [tensor.data for tensor in reader.tensors] + ([keys.table] if keys.table is not None else []))


def _write(writer: "GGUFWriter", tensors: list[np.ndarray]) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in tensors:
        writer.write_tensor_data(tensor)
    writer.close()


@contextmanager
def _whole(target: Path) -> Iterator[Path]:
    """A file beside the target that takes its place when the block ends well."""
    partial = target.with_name(f".{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.rename(target)
    except OSError as error:
        raise LengthenError(f"Could not write {target}: {error}. Nothing was written.") from error
    finally:
        partial.unlink(missing_ok=True)
