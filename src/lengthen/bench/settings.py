"""What to measure of attention: every combination of methods, backends, precisions, lengths and passes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, process_time

import torch

from lengthen.backends import BACKENDS
from lengthen.core import UsageError, parse
from lengthen.core.errors import require_count, require_positive, unknown

from .capacity import require_memory
from .case import DTYPES, PASSES, Case
from .pairs import Clock

CLOCKS: dict[str, Clock] = {"wall": perf_counter, "cpu": process_time}
"""By name: time on the wall, or of this process's threads together (robust on a busy machine; use one thread)."""


@dataclass(frozen=True)
class AttentionBench:
    """The combinations, and how long to measure them. Raises UsageError for names, sizes or devices that are not there."""

    methods: tuple[str, ...]
    """Specs, such as `alibi` or `rope+window:tokens=512`."""
    lengths: tuple[int, ...] = (1024, 4096)
    """Tokens."""
    dtypes: tuple[str, ...] = ("float32",)
    backends: tuple[str | None, ...] = (None,)
    """None: the one that attention chooses."""
    passes: tuple[str, ...] = tuple(PASSES)
    batch: int = 1
    heads: int = 8
    groups: int | None = None
    """Key/value heads; None: as many as `heads`."""
    head_size: int = 64
    layers: int = 1
    """Attentions that share one layout, and so their tables, in a forward pass."""
    train_length: int = 1024
    """What the encodings are built for; a window, for one, takes its size from it."""
    threads: int | None = None
    """None: PyTorch's own choice."""
    repeats: int = 9
    """Most rounds, each with one time of either contestant."""
    budget: float = 600.0
    """Seconds for all rows together; three rounds of each are made whatever they take."""
    memory: bool = True
    """Whether to measure memory too; that runs every case two more times."""
    clock: str = "wall"
    device: str = "cpu"

    def __post_init__(self):
        for kind, given, known in (
            ("dtype", self.dtypes, DTYPES),
            ("pass", self.passes, PASSES),
            ("backend", self.backends, BACKENDS),
            ("clock", (self.clock,), CLOCKS),
        ):
            for name in given:
                if name is not None and name not in known:
                    raise unknown(kind, name, known)
        self._require_counts()
        for spec in self.methods:
            parse(spec)
        require_device(self.device)

    def _require_counts(self) -> None:
        for name in ("batch", "heads", "head_size", "layers", "train_length", "repeats", "groups", "threads"):
            if getattr(self, name) is not None:
                require_count("bench attention", name, getattr(self, name), name.replace("_", " "))
        for length in self.lengths:
            require_count("bench attention", "lengths", length, "tokens")
        require_positive("bench attention", "budget", self.budget, "seconds")
        if self.heads % self.key_value_heads:
            raise UsageError(
                f"{self.heads} query heads cannot share {self.groups} key/value heads evenly; use a divisor of {self.heads}."
            )

    @property
    def key_value_heads(self) -> int:
        return self.groups if self.groups is not None else self.heads

    def cases(self) -> list[Case]:
        """One per row, short lengths first."""
        shared = ("batch", "heads", "head_size", "layers", "train_length", "device")
        same = {name: getattr(self, name) for name in shared} | {"groups": self.key_value_heads}
        return [
            Case(method, backend, dtype, length, kind, **same)
            for length in self.lengths
            for dtype in self.dtypes
            for kind in self.passes
            for method in self.methods
            for backend in self.backends
        ]

    def require_room(self) -> None:
        """Refuses what cannot fit in memory: UsageError with both numbers."""
        require_memory(self.cases())


def require_device(device: str) -> None:
    """Refuses a device that is not here."""
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise unknown("device", device, ("cpu", "cuda")) from None
    if kind not in ("cpu", "cuda"):
        raise unknown("device", device, ("cpu", "cuda"))
    if kind == "cuda" and not torch.cuda.is_available():
        raise UsageError("There is no CUDA device here. Use --device cpu.")


@contextmanager
def threads(count: int | None) -> Iterator[int]:
    """PyTorch's threads set to `count` within the block; yields how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(count if count is not None else before)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def synchronise(device: str) -> Callable[[], None]:
    """Waits for what a device was asked to do."""
    return torch.cuda.synchronize if torch.device(device).type == "cuda" else lambda: None
