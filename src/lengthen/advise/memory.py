"""Whether the target fits, before anything is read."""

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from lengthen.core import UsageError

from .forward import CELLS, cache_bytes, prefill

PROBE = 8
COPIES = 2
"""The cache, and the twin that grows while questions are asked and tokens are decoded."""


@dataclass(frozen=True)
class Need:
    """Bytes beyond the weights that one reading takes at most, estimated."""

    cache: int
    """Keys and values of the target, `COPIES` times."""
    activations: int
    """Of one layer: the stream four times over, and three times the inner width of its MLP."""
    logits: int
    """Of one block of tokens, in float32 and three times over."""

    @property
    def total(self) -> int:
        return self.cache + self.activations + self.logits


@torch.inference_mode()
def need(model: PreTrainedModel, target: int) -> Need:
    """Reads a few tokens to see what the cache holds per token; layers with a sliding window count up to it."""
    cache = prefill(model, torch.ones(1, PROBE, dtype=torch.long, device=model.device)).cache
    one = cache_bytes(cache, PROBE, PROBE) / PROBE
    whole = len(cache.layers)
    held = sum(min(target, getattr(layer, "sliding_window", target)) for layer in cache.layers) / whole
    config, size = model.config, model.dtype.itemsize
    inner = getattr(config, "intermediate_size", 4 * config.hidden_size)
    return Need(int(COPIES * one * held), (4 * config.hidden_size + 3 * inner) * target * size, 3 * CELLS * 4)


def available(device: torch.device) -> int | None:
    """Bytes that are free on the device; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    listing = Path("/proc/meminfo")
    if device.type != "cpu" or not listing.is_file():
        return None
    row = next((line for line in listing.read_text().splitlines() if line.startswith("MemAvailable")), None)
    return None if row is None else int(row.split()[1]) * 1024


def require_room(needed: Need, free: int | None, target: int) -> str | None:
    """A warning where it will be tight. Raises UsageError, with both numbers, where the target cannot fit."""
    if free is None:
        return None
    gib = lambda size: f"{size / 2**30:.2f} GiB"
    said = f"A reading of {target} tokens takes about {gib(needed.total)} beyond the weights ({gib(needed.cache)} of it keys and values)"
    if needed.total > free:
        raise UsageError(
            f"{said}, and {gib(free)} are free. Lower the target, load in --dtype bfloat16, or use a larger machine."
        )
    return f"{said}, and {gib(free)} are free: it will be tight." if needed.total > 0.7 * free else None
