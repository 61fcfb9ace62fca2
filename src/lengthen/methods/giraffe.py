"""Giraffe: frequencies lowered by a power, or truncated (Pal et al. 2023, arXiv:2308.10882; abacusai/Long-Context)."""

from dataclasses import dataclass
from math import pi

import numpy as np

from lengthen.core import FrequencyRule, Geometric, Scheme, UsageError, method
from lengthen.core.errors import require_count, require_positive

from .rope import rotary_scheme


@dataclass(frozen=True)
class Power(FrequencyRule):
    """theta_i (1 - 2i/R)^k: high frequencies hardly change, low ones are lowered most, the last by (2/R)^k."""

    power: float = 0.5
    """k."""
    base: float = 10_000.0

    def __post_init__(self):
        require_positive("Giraffe", "power", self.power, "powers of the pair")
        Geometric(self.base)

    def inv_freq(self, dim: int) -> np.ndarray:
        return Geometric(self.base).inv_freq(dim) * (1 - np.arange(dim // 2) / (dim // 2)) ** self.power


@dataclass(frozen=True)
class Truncated(FrequencyRule):
    """theta_i where it turns at least once within the trained length L; slower ones share one frequency or stop.

    Kept for theta_i >= b = 2 pi / L; `held` b for cut b <= theta_i < b; 0 below. The released code holds less than it cuts
    at: 1/16 against 1/8.
    """

    original: int
    """L, in tokens."""
    base: float = 10_000.0
    cut: float = 1 / 8
    """Turns within L below which a pair carries no position."""
    held: float = 1 / 16
    """Turns within L of those between."""

    def __post_init__(self):
        require_count("Giraffe", "original", self.original, "tokens")
        Geometric(self.base)
        for name in ("cut", "held"):
            require_positive("Giraffe", name, getattr(self, name), "turns")
            if getattr(self, name) > 1:
                raise UsageError(
                    f"The {name!r} of Giraffe counts turns of pairs that turn less than once, got {getattr(self, name)}."
                )

    def inv_freq(self, dim: int) -> np.ndarray:
        theta, once = Geometric(self.base).inv_freq(dim), 2 * pi / self.original
        return np.where(theta >= once, theta, np.where(theta >= self.cut * once, self.held * once, 0.0))


@method(
    "giraffe_power", family="rescaling", paper="2308.10882", variants=({"power": 0.1, "fraction": 0.5, "interleaved": False},)
)
def giraffe_power(
    head_size: int, *, power: float = 0.5, base: float = 10_000.0, fraction: float = 1.0, interleaved: bool = True
) -> Scheme:
    """RoPE whose frequencies are lowered by (1 - 2i/R)^k; meant for continued training.

    power: k.
    base: before lowering, radians per token.
    fraction: share of each head that is turned.
    interleaved: pair channels (2i, 2i+1), or (i, i+R/2) as Hugging Face.
    """
    return rotary_scheme(Power(power, base), head_size, fraction, interleaved)


@method("giraffe_truncated", family="rescaling", paper="2308.10882", variants=({"fraction": 0.5, "interleaved": False},))
def giraffe_truncated(
    head_size: int,
    train_length: int,
    *,
    cut: float = 1 / 8,
    held: float = 1 / 16,
    base: float = 10_000.0,
    fraction: float = 1.0,
    interleaved: bool = True,
) -> Scheme:
    """RoPE without the frequencies that never finish a turn in training; meant for continued training.

    cut: turns within the trained length below which a pair is freed from position.
    held: turns of the slow pairs that are kept.
    base: of the geometric frequencies, radians per token.
    fraction: share of each head that is turned.
    interleaved: pair channels (2i, 2i+1), or (i, i+R/2) as Hugging Face.
    """
    return rotary_scheme(Truncated(train_length, base, cut, held), head_size, fraction, interleaved)
