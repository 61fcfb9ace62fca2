"""RoPE: rotary position embedding (Su et al. 2021, arXiv:2104.09864)."""

import torch
from torch import Tensor

from lengthen.core import FrequencyRule, Geometric, Rotation, Scheme, Temperature, UsageError, method


class Rotary(Rotation):
    """Pair i turned by pos * theta_i, so that the score depends on the distance only (section 3.2, equation 34).

    factor_i(p) = mscale * exp(1j * p * theta_i); angles in float64, whatever the model is in.
    """

    def __init__(self, rule: FrequencyRule, size: int, interleaved: bool = True):
        super().__init__(size, interleaved)
        self.rule = rule
        self.inv_freq = rule.inv_freq(size)

    def factors(self, pos: Tensor, centre: Tensor, keys: bool) -> Tensor:
        angle = pos[..., None] * torch.from_numpy(self.inv_freq).to(pos.device)
        return torch.polar(torch.full_like(angle, self.rule.mscale), angle)


class HeadScale(Temperature):
    """q . k times a constant, at every length: what a rule says of the whole head."""

    def __init__(self, scale: float):
        super().__init__()
        self.scale = scale

    def forward(self, seen: Tensor) -> Tensor:
        return torch.full_like(seen, self.scale)[:, None]


def rotary_size(head_size: int, fraction: float) -> int:
    """Channels that are turned: `fraction` of the head, as HF and GPT-NeoX round it."""
    if not 0 < fraction <= 1:
        raise UsageError(f"The 'fraction' of rope must lie in (0, 1], got {fraction}. 1 turns the whole head of {head_size}.")
    return int(head_size * fraction)


def rotary_scheme(rule: FrequencyRule, head_size: int, fraction: float, interleaved: bool) -> Scheme:
    """Queries and keys turned by a rule, and scaled once as it says."""
    scale = None if rule.head_scale == 1.0 else HeadScale(rule.head_scale)
    return Scheme(rotation=Rotary(rule, rotary_size(head_size, fraction), interleaved), temperature=scale)


@method("rope", family="rotary", paper="2104.09864", variants=({"interleaved": False}, {"fraction": 0.5}))
def rope(head_size: int, *, base: float = 10_000.0, fraction: float = 1.0, interleaved: bool = True) -> Scheme:
    """Queries and keys turned by an angle proportional to their position.

    base: of the geometric frequencies base^(-2i/R), radians per token.
    fraction: share of each head that is turned; frequencies use the turned width R, as GPT-NeoX does.
    interleaved: pair channels (2i, 2i+1) as the paper and GPT-J; False pairs (i, i+R/2) as GPT-NeoX and Hugging Face.
    """
    return rotary_scheme(Geometric(base), head_size, fraction, interleaved)
