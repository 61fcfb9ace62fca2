"""What a configuration file or a server has a place for: frequencies that no length changes, and one multiplier."""

from dataclasses import dataclass

import numpy as np

from lengthen.core import Causal, FrequencyRule, Geometric, Scheme
from lengthen.methods.rope import HeadScale, Rotary

from ..rows import ByRow


@dataclass(frozen=True)
class Static:
    """How some layers of a checkpoint turn queries and keys from now on, at every length alike."""

    rule: FrequencyRule
    size: int
    """R, the channels that are turned."""
    head_size: int
    interleaved: bool
    """Whether channels (2i, 2i+1) turn together, and not (i, i + R/2)."""
    base: float
    """Of the checkpoint's own frequencies."""
    original: int
    """The trained length, in tokens."""
    tokens: int
    """The length that is meant to be read."""

    @property
    def inv_freq(self) -> np.ndarray:
        """float64 [R/2], radians per token."""
        return self.rule.inv_freq(self.size)

    @property
    def mscale(self) -> float:
        """Multiplies queries and keys alike in the channels that turn; their logits grow by its square."""
        return self.rule.mscale

    @property
    def divisors(self) -> np.ndarray:
        """float64 [R/2]: what the checkpoint's own geometric frequencies are divided by. 1e30 stands for a pair at rest.

        JSON knows no infinity, and an angle of 1e-30 a token leaves float32 as it is at any position.
        """
        with np.errstate(divide="ignore"):
            return np.minimum(Geometric(self.base).inv_freq(self.size) / self.inv_freq, 1e30)


def obstacle(scheme: Scheme) -> str | None:
    """Why a configuration cannot express a scheme; None where it can."""
    if isinstance(scheme.rotation, ByRow):
        return f"it was settled for {len(scheme.rotation.rows)} rows of their own lengths, and a configuration says one for all"
    if not isinstance(scheme.rotation, Rotary):
        kind = "no rotation" if scheme.rotation is None else f"the rotation {type(scheme.rotation).__name__}"
        return f"it has {kind}, and a configuration lists frequencies"
    if isinstance(scheme.temperature, HeadScale):
        return (
            f"it multiplies q . k of the whole head by {scheme.temperature.scale:g}, and a configuration multiplies only the "
            "channels that turn"
        )
    if scheme.temperature is not None:
        return (
            f"its temperature {type(scheme.temperature).__name__} follows the number of visible keys, and frequencies are fixed"
        )
    if scheme.positions is not None:
        return f"{type(scheme.positions).__name__} maps positions"
    if scheme.branches:
        return f"it scores {len(scheme.branches)} regions of the plane at positions of their own"
    terms = [*scheme.terms, *scheme.value_terms]
    if terms:
        return f"{type(terms[0]).__name__} adds to attention what no configuration describes"
    return None if scheme.pattern == Causal() else f"its pattern is {scheme.pattern}, and a configuration knows none of its own"
