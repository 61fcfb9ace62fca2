"""Bugs in rotations."""

import numpy as np
import torch

from lengthen.core import Geometric, Rotation, Scheme
from lengthen.methods.rope import Rotary

from .planted import Mutant


class Decaying(Rotation):
    """xPos in small (arXiv:2212.10554): RoPE whose keys shrink with distance, measured from the centre of the plan."""

    causal_only, reach, cacheable = True, 64, False

    def __init__(self, size: int):
        super().__init__(size, interleaved=True)
        self.inv_freq = Geometric().inv_freq(size)

    def from_where(self, pos, centre):
        return pos - centre

    def factors(self, pos, centre, keys):
        angle = pos[..., None] * torch.from_numpy(self.inv_freq)
        zoom = self.from_where(pos, centre)[..., None] * 0.02 * (1 if keys else -1)
        return torch.polar(zoom.clamp(max=50).exp().expand_as(angle), angle)


class CentredPerCall(Decaying):
    """The middle of whatever came in: one place for queries, another for keys."""

    def from_where(self, pos, centre):
        return pos - pos[:, pos.shape[1] // 2, None]


class CachesCentredKeys(Decaying):
    cacheable = True


class CatInterleave(Rotary):
    """rotate_half of the interleaved layout put together by `cat`."""

    def turn(self, x, tables):
        (factors,) = tables
        cos, sin = (t.repeat_interleave(2, -1).to(x.dtype) for t in (factors.real, factors.imag))
        return x * cos + torch.cat((-x[..., 1::2], x[..., ::2]), -1) * sin


class QueriesOnly(Rotary):
    def factors(self, pos, centre, keys):
        return super().factors(torch.zeros_like(pos) if keys else pos, centre, keys)


class Stateful(Rotary):
    """Dynamic NTK that reads the length inside the forward and keeps it."""

    seen = 16

    def factors(self, pos, centre, keys):
        self.seen = max(self.seen, int(pos.max()) + 1)
        self.inv_freq = Geometric(10_000.0 * (self.seen / 16) ** 1.2).inv_freq(self.size)
        return super().factors(pos, centre, keys)


class OfTheBatch(Rotary):
    """Dynamic NTK whose base follows the longest row of the batch."""

    cacheable = False

    def factors(self, pos, centre, keys):
        base = 10_000.0 * max(1.0, (centre.max().item() + 1) / 16) ** 1.2
        angle = pos[..., None] * torch.from_numpy(Geometric(base).inv_freq(self.size))
        return torch.polar(torch.ones_like(angle), angle)


class Rounded(Rotary):
    """Positions in bfloat16, always."""

    def factors(self, pos, centre, keys):
        return super().factors(pos.bfloat16().double(), centre, keys)


class FrequencyBuffer(Rotary):
    """Frequencies in a buffer: `.bfloat16()` rounds them."""

    persistent = True

    def __init__(self, size: int):
        super().__init__(Geometric(), size)
        self.register_buffer("freq", torch.from_numpy(self.inv_freq), persistent=self.persistent)

    def factors(self, pos, centre, keys):
        angle = pos[..., None] * self.freq.double()
        return torch.polar(torch.ones_like(angle), angle)


class RoundedWithModel(FrequencyBuffer):
    """Positions in the type of the model."""

    def factors(self, pos, centre, keys):
        return Rotary.factors(self, pos.to(self.freq.dtype).double(), centre, keys)


class Unsaved(FrequencyBuffer):
    """A buffer that is in no state dict: memory from the meta device stays empty."""

    persistent = False


class RandomUnsaved(Rotary):
    """Frequencies drawn at construction, in a plain attribute."""

    def __init__(self, size: int):
        super().__init__(Geometric(), size)
        self.inv_freq = self.inv_freq * np.exp(0.1 * torch.randn(size // 2).double().cpu().numpy())


def with_rotation(make):
    return lambda shape: Scheme(rotation=make(shape.head_size))


rope, xpos = with_rotation(lambda d: Rotary(Geometric(), d)), with_rotation(Decaying)

MUTANTS = (
    Mutant("interleaved rotate_half by cat", "shift", rope, with_rotation(lambda d: CatInterleave(Geometric(), d))),
    Mutant("queries turned, keys not", "shift", rope, with_rotation(lambda d: QueriesOnly(Geometric(), d))),
    Mutant("length-dependent, stateful RoPE", "repeatability", rope, with_rotation(lambda d: Stateful(Geometric(), d))),
    Mutant("length-dependent, stateful RoPE", "cached_chunks", rope, with_rotation(lambda d: Stateful(Geometric(), d))),
    Mutant("base of the longest row in the batch", "right_padding", rope, with_rotation(lambda d: OfTheBatch(Geometric(), d))),
    Mutant("base of the whole text", "prefix", rope, with_rotation(lambda d: OfTheBatch(Geometric(), d))),
    Mutant("xPos centred per call", "cached_chunks", xpos, with_rotation(CentredPerCall)),
    Mutant("centred keys cached turned", "cached_chunks", xpos, with_rotation(CachesCentredKeys)),
    Mutant("positions in bfloat16", "shift", rope, with_rotation(lambda d: Rounded(Geometric(), d))),
    Mutant("positions in the type of the model", "precision", rope, with_rotation(RoundedWithModel)),
    Mutant("frequencies in a buffer", "precision", rope, with_rotation(FrequencyBuffer)),
    Mutant("frequencies in an unsaved buffer", "meta", rope, with_rotation(Unsaved)),
    Mutant("drawn frequencies in an attribute", "save_load", rope, with_rotation(RandomUnsaved)),
)
