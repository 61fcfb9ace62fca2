"""lengthen: make Transformers work past their training length, and prove it."""

from importlib import import_module

__version__ = "0.1.0"

_PUBLIC = {
    "Scheme": "lengthen.core",
    "compose": "lengthen.core",
    "Causal": "lengthen.core",
    "Everywhere": "lengthen.core",
    "method": "lengthen.core",
    "build": "lengthen.core",
    "attend": "lengthen.backends",
    "Decoder": "lengthen.models",
    "extend": "lengthen.hf",
    "export": "lengthen.hf",
    "load": "lengthen.hf",
    "declared": "lengthen.hf",
}

__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str):
    """Imports lazily, so that `lengthen --help` does not wait for torch."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'lengthen' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
