"""Provenance: what produced a number. No host name, no user name, no path of the machine."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import lengthen


def provenance(**given: Any) -> dict[str, Any]:
    """Versions, commit, processor and time; `given` (such as the data spec that the user gave) is kept as it is."""
    return {
        "lengthen": lengthen.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        **git_state(Path(lengthen.__file__).parent),
        **given,
    }


def cpu_model() -> str:
    """Name of the processor, as the system gives it."""
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def git_state(folder: Path) -> dict[str, Any]:
    """`commit` and `dirty` of the work tree that tracks `folder`; both None where none does (an installed package)."""
    if not _git(folder, "ls-files", "--error-unmatch", "."):
        return {"commit": None, "dirty": None}
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": _git(folder, "rev-parse", "HEAD"), "dirty": None if changed is None else bool(changed)}


def _git(folder: Path, *command: str) -> str | None:
    """What git says, stripped; None where git fails or is absent."""
    try:
        done = subprocess.run(["git", "--no-optional-locks", *command], cwd=folder, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
