"""Models whose losses are known without computing a Transformer."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn


class KnownModel(nn.Module):
    """`hidden` passes on what `state` says of each token; `head` is a table of logits. Counts the rows that it reads."""

    schemes = ()

    def __init__(self, logits: Tensor, state):
        super().__init__()
        self.table = nn.Parameter(logits)
        self.config = SimpleNamespace(vocab=logits.shape[1])
        self.state, self.rows, self.largest, self.cells = state, [], 0, 0

    def hidden(self, ids: Tensor, *, backend: str | None = None) -> Tensor:
        self.rows += [tuple(row) for row in ids.tolist()]
        self.largest = max(self.largest, ids.numel())
        return self.state(ids)[..., None]

    def head(self, hidden: Tensor) -> Tensor:
        self.cells = max(self.cells, hidden.shape[0] * self.config.vocab)
        return self.table[hidden[..., 0]]

    def under(self, change) -> "KnownModel":
        return self


@pytest.fixture
def uniform():
    """All tokens alike, whatever was read."""
    return lambda vocab: KnownModel(torch.zeros(1, vocab), torch.zeros_like)


@pytest.fixture
def bigram():
    """log p(next | last) from a random table [V, V], float64."""

    def make(vocab: int) -> KnownModel:
        table = torch.randn(vocab, vocab, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        return KnownModel(table.log_softmax(-1), lambda ids: ids)

    return make


@pytest.fixture
def by_context():
    """Of documents of zeros: a loss that depends on how many tokens were read only, `nats(context)` from 1 up."""

    def make(nats: np.ndarray) -> KnownModel:
        hit = torch.from_numpy(np.exp(-nats))
        logits = torch.stack((hit.log(), (1 - hit).log()), dim=1)
        return KnownModel(logits, lambda ids: torch.arange(ids.shape[1]).expand_as(ids))

    return make
