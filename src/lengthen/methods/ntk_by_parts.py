"""NTK-by-parts: pairs interpolated according to how often they turn (bloc97 2023; Peng et al. 2023, arXiv:2309.00071)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, floor, log, pi

import numpy as np

from lengthen.core import FrequencyRule, Geometric, Scheme, UsageError, method
from lengthen.core.errors import require_count, require_positive, unknown
from lengthen.core.frequency import require_factor

from .rope import rotary_scheme


def pair_turning(rotations: float, dim: int, base: float, original: int) -> float:
    """The (fractional) pair that turns `rotations` times within `original` tokens: R ln(L / (2 pi r)) / (2 ln base)."""
    return dim * log(original / (2 * pi * rotations)) / (2 * log(base))


def pair_range(fast: float, slow: float, dim: int, base: float, original: int, truncate: bool = True) -> tuple[float, float]:
    """The pairs that turn `fast` and `slow` times, between which the released code ramps.

    Rounded outwards where `truncate`, and kept within 0 and R-1 (sic: pairs end at R/2-1).
    """
    low, high = (pair_turning(r, dim, base, original) for r in (fast, slow))
    if truncate:
        low, high = floor(low), ceil(high)
    return max(low, 0), min(high, dim - 1)


def ramp(low: float, high: float, pairs: int) -> np.ndarray:
    """0 up to pair `low`, 1 from `high`, linear in the index between; a step where they are equal."""
    width = high - low if high != low else 0.001
    return np.clip((np.arange(pairs) - low) / width, 0, 1)


def kept_by_rotations(theta: np.ndarray, original: int, slow: float, fast: float) -> np.ndarray:
    """Share of theta that is kept: 0 up to `slow` rotations L theta / (2 pi) within `original` = L tokens, 1 from `fast`."""
    return np.clip((original * theta / (2 * pi) - slow) / (fast - slow), 0, 1)


def blend(kept: np.ndarray, other: np.ndarray, share: np.ndarray) -> np.ndarray:
    """kept (1 - share) + other share, written such that it is `kept`, to the bit, where both are the same."""
    return kept + (other - kept) * share


@dataclass(frozen=True)
class NTKByParts(FrequencyRule):
    """theta_i where a pair turns often within the trained length L, theta_i / s where it hardly turns, a ramp between.

    Three ramps go by the name of YaRN, and differ by up to 44 % in a middle pair (R = 64, L = 2048, s = 4):
    'deployed': share of theta_i / s linear in the pair's index, as released and as in every checkpoint;
    'paper': linear in the rotations r_i = L theta_i / (2 pi), from `slow` to `fast` (definition 2);
    'pose': as deployed, but blending the wavelengths' multipliers, theta_i / (share s + 1 - share) (PoSE, arXiv:2309.10400).
    """

    factor: float
    """s, the new length over the trained one."""
    original: int
    """L, the trained length in tokens."""
    base: float = 10_000.0
    fast: float = 32.0
    """Rotations within L from which a pair is kept (beta)."""
    slow: float = 1.0
    """Rotations within L up to which a pair is interpolated (alpha)."""
    ramp: str = field(kw_only=True)
    truncate: bool = True
    """Round the ends of the index ramp outwards; gpt-oss does not."""

    def __post_init__(self):
        require_factor("NTK-by-parts", self.factor)
        require_count("NTK-by-parts", "original", self.original, "tokens")
        _require_falling("NTK-by-parts", self.base)
        for name in ("fast", "slow"):
            require_positive("NTK-by-parts", name, getattr(self, name), "rotations")
        if self.fast <= self.slow:
            raise UsageError(
                f"NTK-by-parts keeps pairs that turn 'fast' times and interpolates those that turn 'slow' times, so fast is "
                f"above slow; got {self.fast} and {self.slow}. The papers have 32 and 1."
            )
        if self.ramp not in RAMPS:
            raise unknown("ramp", self.ramp, RAMPS)

    def inv_freq(self, dim: int) -> np.ndarray:
        return RAMPS[self.ramp](self, Geometric(self.base).inv_freq(dim))


def _by_index(rule: NTKByParts, theta: np.ndarray) -> np.ndarray:
    ends = pair_range(rule.fast, rule.slow, 2 * len(theta), rule.base, rule.original, rule.truncate)
    return ramp(*ends, len(theta))


def _deployed(rule: NTKByParts, theta: np.ndarray) -> np.ndarray:
    return blend(theta, theta / rule.factor, _by_index(rule, theta))


def _paper(rule: NTKByParts, theta: np.ndarray) -> np.ndarray:
    kept = kept_by_rotations(theta, rule.original, rule.slow, rule.fast)
    return blend(theta, theta / rule.factor, 1 - kept)


def _pose(rule: NTKByParts, theta: np.ndarray) -> np.ndarray:
    return theta / (1 + (rule.factor - 1) * _by_index(rule, theta))


RAMPS: dict[str, Callable[[NTKByParts, np.ndarray], np.ndarray]] = {"deployed": _deployed, "paper": _paper, "pose": _pose}
"""From a rule and the trained frequencies to the new ones."""


@dataclass(frozen=True)
class ThreeParts(FrequencyRule):
    """The first version: pairs pass from theta_i to NTK-aware to theta_i / s, by two ramps over the index.

    The ramps run from 16 to 2 and from 1.25 to 0.75 rotations, constants found on LLaMA; kept in jquesnelle/yarn.
    """

    factor: float
    original: int
    base: float = 10_000.0

    def __post_init__(self):
        require_factor("NTK-by-parts", self.factor)
        require_count("NTK-by-parts", "original", self.original, "tokens")
        _require_falling("NTK-by-parts", self.base)

    def inv_freq(self, dim: int) -> np.ndarray:
        theta = Geometric(self.base).inv_freq(dim)
        ntk = Geometric(self.base * self.factor ** (dim / max(dim - 2, 1))).inv_freq(dim)
        linear, scaled = (ramp(*pair_range(*r, dim, self.base, self.original), dim // 2) for r in ((1.25, 0.75), (16.0, 2.0)))
        return blend(theta, blend(ntk, theta / self.factor, linear), scaled)


def _require_falling(owner: str, base: float) -> None:
    Geometric(base)
    if base <= 1:
        raise UsageError(f"{owner} finds pairs by their frequencies, which fall only where 'base' is above 1, got {base}.")


@method(
    "ntk_by_parts",
    family="rescaling",
    paper="2309.00071",
    variants=({"version": "original"}, {"factor": 1.0}, {"fraction": 0.5, "interleaved": False}),
)
def ntk_by_parts(
    head_size: int,
    train_length: int,
    *,
    factor: float = 4.0,
    version: str = "paper",
    base: float = 10_000.0,
    fast: float = 32.0,
    slow: float = 1.0,
    fraction: float = 1.0,
    interleaved: bool = True,
) -> Scheme:
    """RoPE with slow pairs interpolated and fast pairs kept; YaRN without its temperature.

    factor: the new length over the trained one.
    version: 'paper' (ramp linear in rotations), 'deployed' (in the pair's index) or 'original' (by way of NTK-aware).
    base: before scaling, radians per token.
    fast: rotations within the trained length from which pairs are kept; not of the original.
    slow: rotations up to which pairs are interpolated; not of the original.
    fraction: share of each head that is turned.
    interleaved: pair channels (2i, 2i+1), or (i, i+R/2) as Hugging Face.
    """
    if version == "original":
        rule = ThreeParts(factor, train_length, base)
    else:
        rule = NTKByParts(factor, train_length, base, fast, slow, ramp=version)
    return rotary_scheme(rule, head_size, fraction, interleaved)
