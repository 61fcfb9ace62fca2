"""YaRN: NTK-by-parts with sharper attention (Peng et al. 2023, arXiv:2309.00071)."""

from dataclasses import dataclass
from math import log

import numpy as np

from lengthen.core import FrequencyRule, Scheme, UsageError, method
from lengthen.core.errors import require_positive

from .ntk_by_parts import NTKByParts
from .rope import rotary_scheme


def mscale_of(factor: float, weight: float = 1.0) -> float:
    """0.1 * weight * ln s + 1, and 1 for s <= 1 (section 3.4; the weight is DeepSeek's)."""
    return 0.1 * weight * log(factor) + 1 if factor > 1 else 1.0


def attention_factor_of(factor: float, mscale: float | None = None, mscale_all_dim: float | None = None) -> float:
    """What multiplies queries and keys alike: m(mscale) / m(mscale_all_dim) where both are given and not 0, else m(1).

    Where they are equal this is 1, and DeepSeek's models multiply the softmax scale instead: see `head_scale_of`.
    """
    if mscale and mscale_all_dim:
        return mscale_of(factor, mscale) / mscale_of(factor, mscale_all_dim)
    return mscale_of(factor)


def head_scale_of(factor: float, mscale_all_dim: float | None) -> float:
    """What DeepSeek's models multiply q . k of the whole head by: m(mscale_all_dim)^2, and 1 where it is 0 or not given."""
    return mscale_of(factor, mscale_all_dim) ** 2 if mscale_all_dim else 1.0


@dataclass(frozen=True)
class YaRN(FrequencyRule):
    """Frequencies by parts; queries and keys times mscale, 0.1 ln s + 1 unless given, so that logits grow by its square."""

    parts: NTKByParts
    mscale: float | None = None
    """The final factor, applied once: it replaces 0.1 ln s + 1 and does not multiply it."""
    head_scale: float = 1.0

    def __post_init__(self):
        if self.mscale is None:
            object.__setattr__(self, "mscale", mscale_of(self.parts.factor))
        for name in ("mscale", "head_scale"):
            require_positive("YaRN", name, getattr(self, name), "times")

    def inv_freq(self, dim: int) -> np.ndarray:
        return self.parts.inv_freq(dim)


@method(
    "yarn",
    family="rescaling",
    paper="2309.00071",
    variants=(
        {"factor": 1.0},
        {"ramp": "paper", "truncate": False, "fraction": 0.5, "interleaved": False},
        {"mscale": 1.0, "mscale_all_dim": 1.0, "deepseek": True},
    ),
)
def yarn(
    head_size: int,
    train_length: int,
    *,
    factor: float = 4.0,
    base: float = 10_000.0,
    ramp: str = "deployed",
    fast: float = 32.0,
    slow: float = 1.0,
    truncate: bool = True,
    attention_factor: float | None = None,
    mscale: float | None = None,
    mscale_all_dim: float | None = None,
    deepseek: bool = False,
    fraction: float = 1.0,
    interleaved: bool = True,
) -> Scheme:
    """RoPE with slow pairs interpolated, fast pairs kept, and logits multiplied by (0.1 ln factor + 1)^2.

    factor: the new length over the trained one.
    base: before scaling, radians per token.
    ramp: 'deployed' (linear in the pair's index, every checkpoint), 'paper' (in rotations) or 'pose' (in wavelengths).
    fast: rotations within the trained length from which pairs are kept; beta_fast of Hugging Face.
    slow: rotations up to which pairs are interpolated; beta_slow.
    truncate: round the ends of the deployed ramp outwards; False for gpt-oss.
    attention_factor: the final multiplier of queries and keys alike, instead of 0.1 ln factor + 1.
    mscale: with mscale_all_dim, the multiplier is m(mscale) / m(mscale_all_dim), m(x) = 0.1 x ln factor + 1.
    mscale_all_dim: see mscale.
    deepseek: also multiply the softmax scale of the whole head by m(mscale_all_dim)^2, as DeepSeek's models do.
    fraction: share of each head that is turned.
    interleaved: pair channels (2i, 2i+1), or (i, i+R/2) as Hugging Face.
    """
    if attention_factor is not None and (mscale is not None or mscale_all_dim is not None):
        raise UsageError(
            f"yarn takes the final attention_factor ({attention_factor}) or what it is computed from "
            f"(mscale {mscale}, mscale_all_dim {mscale_all_dim}), not both. Leave one out."
        )
    parts = NTKByParts(factor, train_length, base, fast, slow, truncate, ramp=ramp)
    final = attention_factor if attention_factor is not None else attention_factor_of(factor, mscale, mscale_all_dim)
    rule = YaRN(parts, final, head_scale_of(factor, mscale_all_dim) if deepseek else 1.0)
    return rotary_scheme(rule, head_size, fraction, interleaved)
