"""A tiny run with everything random switched on; as a script, what tests kill or start several of."""

import json
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn

from lengthen.core import DistanceTerm, Embedding, PositionMap, Scheme
from lengthen.models import Decoder, DecoderConfig
from lengthen.train import TrainConfig, train

CONFIG = TrainConfig(steps=60, lr=3e-3, warmup=2, log_every=2, checkpoint_every=7, seed=3)
SIZES = DecoderConfig(vocab=31, layers=2, heads=2, width=16, dropout=0.1)


class Jump(PositionMap):
    """Adds a random constant in training."""

    def forward(self, idx: Tensor, tokens: Tensor | None = None) -> Tensor:
        return idx + torch.randint(1000, (1,)) if self.training else idx


class Slope(DistanceTerm):
    """A learned slope per head."""

    def __init__(self, heads: int):
        super().__init__()
        self.slope = nn.Parameter(torch.linspace(0.1, 0.5, heads))

    def at(self, distance: Tensor) -> Tensor:
        return -self.slope.to(distance.dtype).view(-1, *[1] * distance.dim()) * distance


class Wave(Embedding):
    """A learned gain on one sine."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.full((16,), 0.2))

    def forward(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + (pos.float()[..., None].sin() * self.gain).to(x.dtype)


def make_model(dropout: float = 0.1) -> Decoder:
    """Two layers whose schemes differ; the second embedding is never applied, so its gain has no gradient."""
    first = Scheme(positions=Jump() if dropout else None, embedding=Wave(), terms=[Slope(2)])
    return Decoder(replace(SIZES, dropout=dropout), [first, Scheme(embedding=Wave())], seed=1)


class Text:
    """Rows of a fixed random walk over the vocabulary; one target in five is not scored, in the first row only."""

    def __init__(self, rows: int = 3, length: int = 12, seed: int = 0):
        self.rows, self.length, self.seed = rows, length, seed
        self.tokens_per_step = rows * length
        self.asked: list[int] = []

    def at(self, step: int) -> SimpleNamespace:
        self.asked.append(step)
        start = np.random.default_rng((self.seed, step)).integers(0, 31, (self.rows, 1))
        walk = (start + np.arange(self.length + 1) * 3) % 31
        targets = walk[:, 1:].copy()
        targets[0, ::5] = -100
        return SimpleNamespace(ids=walk[:, :-1].copy(), targets=targets, doc=None)


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, steps, dropout = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    slowly = lambda *_: time.sleep(0.01)  # leaves whoever kills it the time to do so
    result = train(make_model(dropout), Text(), replace(CONFIG, steps=steps), folder, progress=slowly)
    print(json.dumps(result.__dict__))
