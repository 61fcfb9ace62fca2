"""xPos: rotary embedding with exponential decay (Sun et al. 2022, arXiv:2212.10554)."""

import numpy as np
import torch
from torch import Tensor

from lengthen.core import FrequencyRule, Geometric, Rotation, Scheme, UsageError, method
from lengthen.core.errors import require_positive


class XPos(Rotation):
    """Pair i turned by pos * theta_i and shrunk by zeta_i^(1/B) per position of distance.

    With the query at m and the key at n <= m, pair i of the score is RoPE's times zeta_i^((m-n)/B), where
    zeta_i = (i/(R/2) + gamma) / (1 + gamma), gamma = 0.4, and B is `scale_base`, in positions. The paper prints
    zeta_i^(m-n); B is a device of the released code (512), without which no float could hold the factors.

    The decay is split about c, the largest query position of the plan: queries take zeta_i^((m-c)/B), at most
    zeta_0^(-4) = 150 because `reach` is 4 B; keys take zeta_i^((c-n)/B), at most 1, clamped to 1 for keys behind c, which
    no query of the plan sees. So nothing overflows in fp16 at any position. Keys so far back that their factor underflows
    become zero, which is the limit of the decay.
    """

    causal_only = True
    cacheable = False

    def __init__(self, rule: FrequencyRule, size: int, scale_base: float = 512.0, gamma: float = 0.4):
        super().__init__(size, interleaved=True)
        require_positive("XPos", "gamma", gamma, "decay units")
        require_positive("XPos", "scale_base", scale_base, "positions")
        if scale_base < 1:
            raise UsageError(
                f"The 'scale_base' of XPos must be at least 1 position, got {scale_base}. The released code has 512."
            )
        self.rule, self.scale_base, self.reach = rule, scale_base, int(4 * scale_base)
        self.inv_freq = rule.inv_freq(size)
        self.zeta = (np.arange(size // 2) / (size / 2) + gamma) / (1 + gamma)

    def factors(self, pos: Tensor, centre: Tensor, keys: bool) -> Tensor:
        steps = (centre - pos) / self.scale_base
        exponent = steps.clamp_min(0) if keys else -steps
        decay = torch.from_numpy(self.zeta).to(pos.device) ** exponent[..., None]
        angle = pos[..., None] * torch.from_numpy(self.inv_freq).to(pos.device)
        return torch.polar(decay * self.rule.mscale, angle)


@method("xpos", family="rotary", paper="2212.10554", variants=({"scale_base": 64.0},))
def xpos(head_size: int, *, base: float = 10_000.0, scale_base: float = 512.0, gamma: float = 0.4) -> Scheme:
    """RoPE whose pairs decay exponentially with distance, slow pairs least; causal only.

    base: of the geometric frequencies base^(-2i/D), radians per token.
    scale_base: positions over which pair i decays by zeta_i; 512 in the released code.
    gamma: offset of the decay bases zeta_i = (2i/D + gamma) / (1 + gamma).
    """
    return Scheme(rotation=XPos(Geometric(base), head_size, scale_base, gamma))
