"""Records: one row per measurement, in JSON Lines that a crash cannot tear."""

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from lengthen.core.errors import LengthenError, UsageError


@dataclass(frozen=True)
class Record:
    """One measurement."""

    run: str
    """Identifier of the experiment."""
    method: str
    """Spec of the position method, such as `rope+window:tokens=64`."""
    seed: int | None
    """Training seed; None: over all seeds."""
    train_length: int
    """Tokens per training sequence."""
    eval_length: int
    """Tokens per window that was read."""
    protocol: str
    """Name of the protocol: what was read for what score."""
    control: str
    """`none`, or what the same weights were read under: `window` or `bca`."""
    task: str
    """What was asked of the model, such as `language_modelling`."""
    metric: str
    """Name with its unit, such as `nats_per_token`."""
    value: float | None
    """The measurement; None, with a `reason`, where it is not a finite number."""
    n: int
    """Documents (or samples): what the interval resamples."""
    low: float | None = None
    """Lower end of the 95% interval; None: there is none."""
    high: float | None = None
    reason: str | None = None
    """Why the value is missing, or what limits the interval."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Options of the method."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What belongs to this measurement only: tokens scored, context, provenance."""


def to_line(record: Record) -> str:
    """Strict JSON without line breaks. Numbers that are not finite become null, and `reason` names them."""
    found: list[str] = []
    plain = {k: _finite(v, k, found) for k, v in asdict(record).items()}
    if found:
        plain["reason"] = "; ".join(filter(None, [record.reason, *found]))
    return json.dumps(plain, ensure_ascii=False, allow_nan=False, default=_refuse_type)


def write_records(path: str | Path, records: Iterable[Record]) -> None:
    """Writes the file anew, whole or not at all."""
    replace_file(Path(path), "".join(to_line(r) + "\n" for r in records).encode())


def append_records(path: str | Path, records: Iterable[Record]) -> None:
    """Adds rows to a file that may not exist yet. A crash leaves the previous file whole."""
    path, rows = Path(path), "".join(to_line(r) + "\n" for r in records).encode()
    held = path.read_bytes() if path.exists() else b""
    replace_file(path, held + (b"\n" if held and not held.endswith(b"\n") else b"") + rows)


def read_records(path: str | Path) -> list[Record]:
    """The rows in order. Raises UsageError that names the line, or the byte offset where the text is not UTF-8."""
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"There is no records file {path}. Records are JSON Lines, one measurement per line.")
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: byte {error.object[error.start]:#04x} at offset {error.start}.") from None
    return [_record(line, f"Line {n} of {path}") for n, line in enumerate(text.split("\n"), 1) if line.strip()]


def _record(line: str, where: str) -> Record:
    try:
        row = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not strict JSON: {error}. Remove or repair that line.") from None
    if not isinstance(row, dict):
        raise UsageError(f"{where} holds a {type(row).__name__}, not an object with the fields of a record.")
    known = {f.name for f in fields(Record)}
    optional = {"low", "high", "reason", "params", "extra"}
    wrong = [f"lacks {n!r}" for n in sorted(known - optional - row.keys())] + [f"has {n!r}" for n in sorted(row.keys() - known)]
    if wrong:
        raise UsageError(f"{where} is not a record: it {', '.join(wrong)}.")
    bad = [n for n in ("train_length", "eval_length", "n") if not isinstance(row[n], int)]
    bad += [n for n in ("value", "low", "high") if not isinstance(row.get(n), int | float | None)]
    if bad:
        raise UsageError(f"{where} is not a record: its {bad[0]!r} is no number, but {row[bad[0]]!r}.")
    return Record(**row)


def with_extra(record: Record, **extra: Any) -> Record:
    """The record with more beside it, such as provenance."""
    return replace(record, extra={**record.extra, **extra})


def replace_file(path: Path, content: bytes) -> None:
    """Writes beside the file, syncs, then renames over it: a reader sees the old file or the new one, never a part.

    Raises LengthenError where the disk refuses.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, content)
    except OSError as error:
        kept = "What was there before is whole." if path.exists() else "Nothing was written."
        raise LengthenError(f"Could not write {path}: {error.strerror}. {kept}") from error


def _replace(path: Path, content: bytes) -> None:
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as draft:
        try:
            draft.write(content)
            draft.flush()
            os.fsync(draft.fileno())
            os.chmod(draft.name, path.stat().st_mode if path.exists() else 0o644)
            os.replace(draft.name, path)
        except BaseException:
            Path(draft.name).unlink(missing_ok=True)
            raise


def _finite(value: Any, name: str, found: list[str]) -> Any:
    """The value with every number that is not finite replaced by None and filed under its name."""
    if isinstance(value, Mapping):
        return {str(k): _finite(v, f"{name}.{k}", found) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v, f"{name}[{n}]", found) for n, v in enumerate(value)]
    if isinstance(value, np.generic | np.ndarray):
        return _finite(value.tolist(), name, found)
    if isinstance(value, float) and not math.isfinite(value):
        found.append(f"{name} is {value}")
        return None
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _refuse_type(value: Any) -> None:
    raise UsageError(f"A record holds numbers, text, lists and mappings, got {value!r} of type {type(value).__name__}.")
