"""Memory that an attention needs beyond its inputs and outputs, measured in a process of its own.

The growth of that process's resident set (its high-water mark) sees all: tensors, a kernel's own buffers, packed matrices.
A profiler of tensor allocations is exact to the byte, but blind to the last two. Before a case is measured it runs once, so
that libraries are loaded and keep what they keep for ever; freed memory returns to the system at once, so that reuse cannot
hide a need. The resolution is about 0.2 MiB. On CUDA, what PyTorch's allocator gave out at most.
"""

import ctypes
import gc
import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict

import torch

from lengthen.core import LengthenError
from lengthen.train.memory import PeakMemory

from .case import Case
from .steps import own_step

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""


class Gauge:
    """Measures cases in one process beside this one, which ends with the `with` block, or with this process."""

    def __init__(self, threads: int):
        self.threads = threads

    def __enter__(self) -> "Gauge":
        command = [sys.executable, "-m", "lengthen.bench.memory", str(self.threads)]
        # A session of its own: Ctrl-C is for this process to handle.
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        return self

    def extra_bytes(self, case: Case) -> int:
        """Peak bytes beyond inputs and outputs. Raises LengthenError where the process died, as for want of memory."""
        try:
            print(json.dumps(asdict(case)), file=self.process.stdin, flush=True)
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            status = self.process.wait()
            self.__exit__()
            self.__enter__()
            raise LengthenError(f"Measuring memory ended the process with status {status}: most likely there was not enough.")
        return json.loads(answer)

    def __exit__(self, *failure: object) -> None:
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def extra_bytes(case: Case) -> int:
    """Peak bytes of one call beyond inputs and outputs, in this process."""
    scheme, scene = case.scheme(), case.scene()
    step = own_step(case, scheme, scene)
    step()
    gc.collect()
    device = torch.device(case.device)
    held = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    memory = PeakMemory(device)
    outputs = step()
    peak = memory.mib() * 2**20 - held
    return max(0, round(peak) - sum(t.numel() * t.element_size() for t in outputs))


def return_freed_memory() -> None:
    """Makes glibc give freed blocks back to the system; elsewhere, nothing happens and peaks are lower bounds."""
    with suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_THRESHOLD, 1 << 16)
        libc.mallopt(_TRIM_THRESHOLD, 0)


def answer() -> None:
    """Reads cases, a JSON object a line, and answers each with its bytes."""
    return_freed_memory()
    torch.set_num_threads(int(sys.argv[1]))
    for line in sys.stdin:
        print(extra_bytes(Case(**json.loads(line))), flush=True)


if __name__ == "__main__":
    answer()
