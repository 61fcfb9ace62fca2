"""Bugs in position maps and embeddings."""

import torch
from torch import nn

from lengthen.core import Embedding, PositionMap, Scheme

from .planted import Mutant


class Waves(Embedding):
    """Sines and cosines added to the embeddings, in small (arXiv:1706.03762)."""

    def angles(self, pos, channels):
        return pos.double()[..., None] * 10_000.0 ** (-torch.arange(0, channels, 2).double() / channels)

    def forward(self, x, pos):
        angle = self.angles(pos, x.shape[-1])
        return x + torch.cat((angle.sin(), angle.cos()), -1).to(x.dtype)


class RoundedWaves(Waves):
    def forward(self, x, pos):
        return super().forward(x, pos.to(x.dtype))


class Clamped(Embedding):
    """A learned table that answers every position beyond its end with its last row."""

    def __init__(self, width: int, length: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(length, width))

    def row(self, pos):
        return pos.clamp(max=len(self.table) - 1)

    def forward(self, x, pos):
        return x + self.table[self.row(pos.clamp_min(0))].to(x.dtype)


class Wrapped(Clamped):
    def row(self, pos):
        return pos % len(self.table)


class Columns(PositionMap):
    """The column of the batch instead of the order of the token."""

    def forward(self, idx, tokens=None):
        return torch.arange(idx.shape[1])[None]


class FromTheEnd(PositionMap):
    """Counted from the longest row of the batch."""

    def forward(self, idx, tokens=None):
        return idx - idx.max()


class AlwaysDraws(PositionMap):
    """A random shift, drawn in evaluation as well."""

    def forward(self, idx, tokens=None):
        return idx + torch.randint(0, 100, (1, 1))


def waves(shape):
    return Scheme(embedding=Waves())


def waves_at(places):
    return lambda shape: Scheme(embedding=Waves(), positions=places())


MUTANTS = (
    Mutant("learned table clamps", "far", waves, lambda s: Scheme(embedding=Clamped(s.width, s.train_length))),
    Mutant("learned table wraps around", "far", waves, lambda s: Scheme(embedding=Wrapped(s.width, s.train_length))),
    Mutant("positions in the type of the model", "precision", waves, lambda s: Scheme(embedding=RoundedWaves())),
    Mutant("columns taken for positions", "left_padding", waves, waves_at(Columns)),
    Mutant("columns taken for positions", "packed", waves, waves_at(Columns)),
    Mutant("counted from the longest row", "left_padding", waves, waves_at(FromTheEnd)),
    Mutant("counted from the end of the text", "prefix", waves, waves_at(FromTheEnd)),
    Mutant("a shift drawn in evaluation", "repeatability", waves, waves_at(AlwaysDraws)),
)
