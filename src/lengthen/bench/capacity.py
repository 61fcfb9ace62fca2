"""Whether a case fits in memory, before it is started."""

from pathlib import Path

import torch

from lengthen.core import UsageError

from .case import DTYPES, Case

_CGROUP = Path("/sys/fs/cgroup")
PLANES = {"dense": (10, 14)}
"""Backends that hold whole planes of scores [B, H, Q, K] in float32: how many, forward and with the backward pass.

Measured with FIRE, the hungriest encoding, at 8 heads: 9.1 and 13.6; ALiBi takes 2.9 and 4.2."""
LINEAR = 2
"""What other backends take, in times of the inputs and outputs in float32; 0.3 to 1.4 were measured."""
TILES = 512 << 20
"""Bytes that blocks of an explicit mask take at most, however long the sequence; 290 MiB were measured, with FIRE."""


def needed(case: Case) -> int:
    """Bytes that a case needs at most, about: inputs, outputs, gradients, workspace, and float64 copies for its errors."""
    sides = 2 * case.batch * case.head_size * (case.queries * case.heads + case.length * case.groups)
    plane = 4 * case.batch * case.heads * case.queries * case.length
    planes = PLANES.get(case.backend, PLANES["dense"])[case.backward] * plane
    passes = 2 if case.backward else 1
    workspace = planes if case.backend in PLANES else passes * sides * 4 * LINEAR + min(planes, TILES)
    return passes * sides * DTYPES[case.dtype].itemsize + sides * 8 + workspace


def available(device: str) -> int | None:
    """Bytes that are free here; None where the system does not say."""
    if torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    listing = Path("/proc/meminfo")
    if not listing.is_file():
        return None
    free = next(line for line in listing.read_text().splitlines() if line.startswith("MemAvailable"))
    return min(int(free.split()[1]) * 1024, _left_in_cgroup())


def _left_in_cgroup() -> float:
    """Bytes below the limit of a container; infinite without one."""
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return int(limit) - int(used)
    except (OSError, ValueError):
        return float("inf")


def require_memory(cases: list[Case]) -> None:
    """Refuses cases of which one cannot fit: UsageError with both numbers, before anything runs."""
    worst = max(cases, key=needed, default=None)
    if worst is not None:
        by = f"the {worst.backend} backend" if worst.backend is not None else "attention"
        require_bytes(f"{worst.method} by {by} at {worst.length} tokens ({worst.kind})", needed(worst), worst.device)


def require_bytes(what: str, need: int, device: str) -> None:
    """Refuses what needs more than is free."""
    free = available(device)
    if free is not None and need > free:
        raise UsageError(
            f"{what} needs about {need / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free. "
            "Give shorter lengths, a smaller model or another backend."
        )
