"""JSON files that a crash cannot tear."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from lengthen.core import UsageError
from lengthen.evaluate.records import replace_file
from lengthen.models.store import read_json as read_object


def write_json(path: Path, content: Any) -> None:
    """Strict JSON, whole or not at all; numbers that are not finite become null."""
    replace_file(path, (json.dumps(plain(content), indent=1, allow_nan=False) + "\n").encode())


def read_json(path: Path, *keys: str) -> dict[str, Any]:
    """The object that `write_json` wrote, which has these keys. Raises UsageError that names the file and the fault."""
    try:
        found = read_object(path)
    except UsageError as error:
        raise UsageError(f"{error} Remove it to make it anew.") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}. Remove it to make it anew.") from None
    missing = [k for k in keys if k not in found]
    if missing:
        raise UsageError(f"{path} is damaged: it lacks {', '.join(missing)}. Remove it to make it anew.")
    return found


def plain(value: Any) -> Any:
    """Built-in types only, fit for strict JSON."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
