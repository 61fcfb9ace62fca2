"""The machine under a number: processor, flags, memory, threads, versions, the native kernel."""

from pathlib import Path
from typing import Any

import torch

from lengthen.backends import BACKENDS
from lengthen.evaluate.provenance import provenance

FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "sve", "asimd", "bf16")
"""Features of processors on which the speed of attention hangs."""
ABSENT = {"built": False, "reason": "The native kernel is not part of this installation; PyTorch's own serve its plans."}


def facts(device: str = "cpu", **given: Any) -> dict[str, Any]:
    """What stands under every report, with what the caller `given`."""
    return {
        **provenance(**given),
        "cpu_flags": " ".join(flags()),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "device": device,
        "native": "; ".join(f"{key} {value}" for key, value in native().items() if value is not None and key != "path"),
    }


def flags() -> list[str]:
    """Those of FLAGS that this processor has; none where the system does not say."""
    listing = Path("/proc/cpuinfo")
    if not listing.is_file():
        return []
    lines = listing.read_text(errors="replace").splitlines()
    found = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), [])
    return [f for f in FLAGS if f in found]


def native() -> dict[str, Any]:
    """What the native kernel says of itself: whether it is built, by which compiler, or why not."""
    if "native" not in BACKENDS:
        return ABSENT
    from lengthen.backends.native import status

    return status()
