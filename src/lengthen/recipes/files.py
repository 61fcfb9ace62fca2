"""JSON files that a crash cannot tear."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from lengthen.core import UsageError
from lengthen.evaluate.records import replace_file


def write_json(path: Path, content: Any) -> None:
    """Strict JSON, whole or not at all; numbers that are not finite become null."""
    replace_file(path, (json.dumps(plain(content), indent=1, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """What `write_json` wrote. Raises UsageError that names the file and the place of the fault."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"There is no {path}.") from None
    except ValueError as error:
        raise UsageError(f"{path} is damaged: {error}. Remove it to make it anew.") from None


def plain(value: Any) -> Any:
    """Built-in types only, fit for strict JSON."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
