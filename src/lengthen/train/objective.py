"""The training loss, in memory that does not grow with the vocabulary."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lengthen.data import IGNORED
from lengthen.models import Decoder

_MOST_LOGITS = 2**24
"""Logits held at once: 64 MiB in float32."""


class Objective(nn.Module):
    """Cross entropy of next tokens, nats summed over the targets that are not IGNORED; float32 or better under any autocast.

    More than `most_logits` logits are made, and made again in the backward pass, a block of tokens at a time.
    """

    def __init__(self, model: Decoder, most_logits: int = _MOST_LOGITS):
        super().__init__()
        self.model, self.vocab = model, model.config.vocab
        self.block = max(1, most_logits // model.config.vocab)

    def forward(self, ids: Tensor, targets: Tensor, doc: Tensor | None = None) -> Tensor:
        """int64 [B, T] thrice -> a scalar."""
        hidden, targets = self.model.hidden(ids, doc=doc).flatten(0, 1), targets.flatten()
        if len(targets) <= self.block:
            return self._nats(hidden, targets)
        blocks = zip(hidden.split(self.block), targets.split(self.block), strict=True)
        again = partial(checkpoint, self._nats, use_reentrant=False, preserve_rng_state=False)
        return torch.stack([again(h, t) for h, t in blocks]).sum()

    def _nats(self, hidden: Tensor, targets: Tensor) -> Tensor:
        logits = self.model.head(hidden)
        exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return F.cross_entropy(exact, targets, ignore_index=IGNORED, reduction="sum")
