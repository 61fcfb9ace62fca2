"""Peak memory of a stretch of work."""

import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeakMemory:
    """MiB that the work between construction and `mib()` needed at most, beyond what the process held before.

    CUDA: memory allocated on the device, in all. CPU: growth of the resident set. Linux can restart its high-water mark;
    elsewhere, or where that is forbidden, the mark is the process's whole life, an upper bound. Memory that the process
    had freed but not returned counts as held: for comparisons start a process per measurement.
    """

    def __init__(self, device: torch.device):
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        with suppress(OSError):
            _RESET.write_text("5")
        self.before = _resident("VmRSS")

    def mib(self) -> float:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 2**20
        return max(0.0, _resident("VmHWM") - self.before)


def _resident(field: str) -> float:
    """MiB: `VmRSS` now, `VmHWM` at most. Without /proc, the most of the process's life for both."""
    if _STATUS.exists():
        row = next(line for line in _STATUS.read_text().splitlines() if line.startswith(field))
        return int(row.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 1024)
