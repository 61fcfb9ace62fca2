"""A corpus by name: shipped documents, local files, a data set of the hub, or several joined."""

import os
from pathlib import Path

from lengthen.core.errors import UsageError, unknown

from .documents import Corpus, join
from .files import read_path
from .hub import SHORT_NAMES, read_hub
from .shipped import SHIPPED_NAMES, load_shipped


def load_corpus(spec: str) -> Corpus:
    """A name of `SHIPPED_NAMES`, a path, 'hf:NAME[:CONFIG][:SPLIT][:COLUMN]', or several of them joined with '+'.

    A file that has the name of a shipped set is reached as './NAME'. Refuses names that are none of these.
    """
    if "+" not in spec or _exists(Path(spec), spec):
        return _load(spec.strip())
    return join(spec, [_load(part.strip()) for part in spec.split("+")])


def _load(spec: str) -> Corpus:
    if not spec:
        raise UsageError("A data set has no name; names are joined with one '+' between each two, as in sotu+stdlib.")
    if spec in SHIPPED_NAMES:
        return load_shipped(spec)
    if spec.startswith("hf:"):
        return read_hub(spec.removeprefix("hf:"))
    path = _path(spec)
    if _exists(path, spec):
        return read_path(path, spec)
    if os.sep in spec or path.suffix:
        raise UsageError(f"There is no file or folder {spec!r} (looked in {path.absolute().parent}).")
    raise unknown("data set, file or folder", spec, (*SHIPPED_NAMES, *(f"hf:{name}" for name in SHORT_NAMES)))


def _path(spec: str) -> Path:
    try:
        return Path(spec).expanduser()
    except RuntimeError as error:
        raise UsageError(f"There is no file or folder {spec!r}: {error} Write the path out.") from error


def _exists(path: Path, spec: str) -> bool:
    """Trap: a path that is too long, or inside a folder that may not be entered, is an OSError, not False."""
    try:
        return path.exists()
    except OSError as error:
        name = spec if len(spec) <= 200 else f"{spec[:200]}..."
        raise UsageError(
            f"The data set {name!r} cannot be read: {error.strerror}. Give another file, folder or name."
        ) from error
