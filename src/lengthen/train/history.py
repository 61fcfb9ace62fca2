"""train.jsonl: the curve of a run, one object per line."""

import json
import os
from pathlib import Path

from lengthen.core import UsageError


class History:
    """Appends to a JSON Lines file cut back to `size` bytes, so that a resumed run doubles no line.

    Raises UsageError where the file is shorter than that. `writes` False (another process writes) makes it silent.
    """

    def __init__(self, path: Path, size: int, writes: bool = True):
        self._file = None
        if not writes:
            return
        there = path.stat().st_size if path.exists() else 0
        if there < size:
            raise UsageError(
                f"{path} has {there} bytes, but its checkpoint was made at {size}: lines are lost. Remove "
                f"{path.parent} to begin that run anew, or start a new folder."
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        self._file.truncate(size)

    def append(self, line: dict) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line).encode() + b"\n")
            self._file.flush()

    def sync(self) -> int:
        """Asks the disk to keep the lines; returns their bytes."""
        if self._file is None:
            return 0
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def __enter__(self) -> "History":
        return self

    def __exit__(self, *error) -> None:
        if self._file is not None:
            self._file.close()
