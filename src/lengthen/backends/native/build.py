"""Compiles the native kernel on first use, once per machine kind and PyTorch; never required.

`LENGTHEN_NATIVE=0` turns it off. `LENGTHEN_CACHE` names the folder that compiled kernels live in (`~/.cache/lengthen`).
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import torch

_HERE = Path(__file__).parent
_SOURCES = ("binding.cpp", "kernel.h")
# Not -ffast-math: infinities and NaN must mean what they mean.
_FLAGS = ("-O3", "-march=native", "-fopenmp", "-DAT_PARALLEL_OPENMP=1", "-fno-math-errno", "-ffp-contract=fast", "-Wno-psabi")


@dataclass(frozen=True)
class Kernel:
    """Whether the operators `torch.ops.lengthen.*` are there, and why not."""

    built: bool
    reason: str | None
    """A sentence, where it is not built."""
    path: str | None = None
    vector_bytes: int | None = None
    """Width of a vector; the kernel computes in it."""


def status() -> dict:
    """What `lengthen doctor` prints of the kernel. Compiles it where that was not yet tried."""
    compiler = _compiler()
    return {**asdict(kernel()), "compiler": compiler, "cache": str(folder())}


def folder() -> Path:
    """Where compiled kernels are kept."""
    home = os.environ.get("LENGTHEN_CACHE")
    return (Path(home) if home else Path.home() / ".cache" / "lengthen") / "native"


def why_off() -> str | None:
    """The reason not even to try, a sentence."""
    if os.environ.get("LENGTHEN_NATIVE") == "0":
        return "The native backend is turned off (LENGTHEN_NATIVE=0)."
    if sys.platform != "linux":
        return f"The native backend was built and tested on Linux only, and this is {sys.platform}."
    return None


@cache
def kernel() -> Kernel:
    """Loads the operators, compiling them if need be; tried once per process, with one warning where it fails."""
    off = why_off()
    if off is not None:
        return Kernel(False, off)
    try:
        path = _library()
        torch.ops.load_library(str(path))
        return Kernel(True, None, str(path), torch.ops.lengthen.vector_bytes())
    except Exception as error:  # a compiler can fail in any way; the other backends give the same numbers
        reason = f"The native kernel could not be built: {_first_line(error)}"
        warnings.warn(
            f"{reason} Attention with biases is about half as fast without it; results are the same. "
            "Install a C++ compiler (g++ or clang++; CXX names another), and see 'lengthen doctor'; LENGTHEN_NATIVE=0 silences this.",
            RuntimeWarning,
            stacklevel=2,
        )
        return Kernel(False, reason)


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    marked = [line for line in lines if "error" in line.lower()]
    return (marked or lines or [type(error).__name__])[0].strip()[:300].rstrip(".") + "."


def _compiler() -> str | None:
    return shutil.which(os.environ.get("CXX", "c++"))


def _library() -> Path:
    """The compiled library, built if it is not there.

    Built in a folder of its own and moved into place, so that neither a killed process nor a second one can leave half a
    library or a lock behind.
    """
    place = folder() / f"{_key()}.so"
    if not place.exists():
        if _compiler() is None:
            raise RuntimeError(f"no C++ compiler {os.environ.get('CXX', 'c++')!r} was found.")
        folder().mkdir(parents=True, exist_ok=True)
        print("lengthen: compiling the native attention kernel, once (about half a minute) ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=folder(), prefix="building-") as partial:
            os.replace(_compile(Path(partial)), place)
    return place


def _key() -> str:
    """Changes with the sources, the flags, PyTorch and what the processor can do."""
    facts = [
        torch.__version__,
        torch.backends.cpu.get_cpu_capability(),
        _processor(),
        " ".join(_FLAGS),
        os.environ.get("CXX", ""),
    ]
    digest = hashlib.sha256("\n".join(facts).encode())
    for name in _SOURCES:
        digest.update((_HERE / name).read_bytes())
    return f"attention-{digest.hexdigest()[:16]}"


def _processor() -> str:
    """What -march=native sees: a home directory may be shared by machines that differ."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""
    return next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), "")


def _compile(place: Path) -> Path:
    from torch.utils.cpp_extension import include_paths, library_paths

    library = place / "attention.so"
    command = [
        *(
            _compiler(),
            *_FLAGS,
            "-std=c++20",
            "-shared",
            "-fPIC",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        ),
        *(part for path in include_paths() for part in ("-isystem", path)),
        *(str(_HERE / "binding.cpp"), "-o", str(library)),
        *(f"-L{path}" for path in library_paths()),
        *("-lc10", "-ltorch_cpu", "-ltorch"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return library
