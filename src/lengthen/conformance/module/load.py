"""`FILE:NAME`: an object of a Python file that the user names, and nothing else, is run."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from lengthen.core.errors import UsageError, unknown


def load_object(where: str) -> Any:
    """The object of `my_file.py:MyEncoding`. Runs the file; its folder is importable meanwhile, for its neighbours.

    Raises UsageError where the file, the name, or what the file imports is missing.
    """
    path, colon, name = where.rpartition(":")
    if not colon or not name:
        raise UsageError(f"{where!r} names no object of a file. Write it as in 'my_module.py:MyEncoding'.")
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"There is no file {path!r}. Write it as in 'my_module.py:MyEncoding'.")
    module = _run(file)
    if name not in vars(module):
        raise unknown(f"object in {path}", name, [n for n in vars(module) if not n.startswith("_")])
    return vars(module)[name]


def _run(file: Path) -> Any:
    spec = spec_from_file_location(f"checked_{file.stem}", file)
    if spec is None:
        raise UsageError(f"{file} is no Python file: its name should end in .py.")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(file.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except (ImportError, SyntaxError) as e:
        raise UsageError(f"{file} cannot be imported: {e}") from e
    finally:
        sys.path.remove(str(file.parent.resolve()))
    return module
