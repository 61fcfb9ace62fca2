"""Token losses of many windows, in bounded memory."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

Window = tuple[int, int, int]
"""Document, first token read, end of the tokens read."""

_CELLS = 2**22
"""Most logits held at a time (16 MiB in float32)."""


@contextmanager
def reading(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; the training mode is restored afterwards."""
    mode = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(mode)


def token_losses(model: nn.Module, ids: Tensor, targets: Tensor, *, backend: str | None = None) -> Tensor:
    """-log p(target | tokens so far) in nats: int64 [B, T], int64 [B, T] -> [B, T], in float32 or better."""
    hidden, wanted = model.hidden(ids, backend=backend).flatten(0, 1), targets.flatten()
    step = max(1, _CELLS // model.config.vocab)
    parts = []
    for h, t in zip(hidden.split(step), wanted.split(step), strict=True):
        logits = model.head(h)
        with torch.autocast(logits.device.type, enabled=False):
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            parts.append(F.cross_entropy(logits, t, reduction="none"))
    return torch.cat(parts).view_as(targets)


def window_losses(
    model: nn.Module,
    documents: Sequence[np.ndarray],
    windows: Iterable[Window],
    *,
    batch_tokens: int,
    backend: str | None = None,
    tick: Callable[[int], None] = lambda tokens: None,
) -> dict[Window, np.ndarray]:
    """Each window read once -> float64 [its tokens], nats. Windows of one width share batches of at most `batch_tokens`
    tokens (or one window). `tick` hears how many tokens were read."""
    device = next(model.parameters()).device
    by_width: dict[int, list[Window]] = defaultdict(list)
    for window in dict.fromkeys(windows):
        by_width[window[2] - window[1]].append(window)
    found: dict[Window, np.ndarray] = {}
    with reading(model):
        for width, group in sorted(by_width.items()):
            rows = max(1, batch_tokens // width)
            for part in (group[r : r + rows] for r in range(0, len(group), rows)):
                ids = torch.from_numpy(np.stack([documents[d][start : stop + 1] for d, start, stop in part])).to(device)
                losses = token_losses(model, ids[:, :-1], ids[:, 1:], backend=backend)
                found.update(zip(part, losses.double().cpu().numpy(), strict=True))
                tick(ids[:, 1:].numel())
    return found
