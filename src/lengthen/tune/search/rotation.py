"""A candidate as a rotation, a scheme and a spec."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lengthen.core import FrequencyRule, Rotation
from lengthen.methods.rope import Rotary

from .space import Candidate


@dataclass(frozen=True)
class Searched(FrequencyRule):
    """theta_i / lambda_i for another rule's theta."""

    rule: FrequencyRule
    factors: tuple[float, ...]
    mscale: float = 1.0

    def inv_freq(self, dim: int) -> np.ndarray:
        return self.rule.inv_freq(dim) / np.array(self.factors)


class FromToken(Rotation):
    """Positions below `start` turned by one rule, the others by another (arXiv:2402.13753, equation 2): p theta_i / lambda_i only
    for p >= start. Not relative: distances across `start` differ from those beyond it."""

    def __init__(self, before: Rotary, after: Rotary, start: int):
        super().__init__(after.size, after.interleaved)
        self.before, self.after, self.start = before, after, start

    def factors(self, pos: Tensor, centre: Tensor, keys: bool) -> Tensor:
        early = (pos < self.start)[..., None]
        return torch.where(early, self.before.factors(pos, centre, keys), self.after.factors(pos, centre, keys))


def rotation_of(candidate: Candidate, own: Rotary, mscale: float) -> Rotation:
    """The candidate's rotation, in place of the trained one; queries and keys are multiplied by `mscale` at every position."""
    after = Rotary(Searched(own.rule, candidate.factors, mscale * own.rule.mscale), own.size, own.interleaved)
    if not candidate.start:
        return after
    ones = (1.0,) * len(candidate.factors)
    before = Rotary(Searched(own.rule, ones, mscale * own.rule.mscale), own.size, own.interleaved)
    return FromToken(before, after, candidate.start)


def spec_of(candidate: Candidate, scale: float, mscale: float) -> str | None:
    """The candidate for `extend` and `export`, base and pairing taken from the checkpoint there; None where n-hat is above 0."""
    if candidate.start:
        return None
    factors = ",".join(f"{f:g}" if f == round(f, 6) else repr(f) for f in candidate.factors)
    return f"longrope:factor={scale:g},long_factor=({factors},),attention_factor={mscale!r}"
