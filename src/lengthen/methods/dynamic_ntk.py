"""Dynamic NTK: a base that grows with the length of the text (emozilla 2023; Peng et al. 2023, arXiv:2309.00071, section 3.3)."""

from dataclasses import dataclass

from lengthen.core import Adaptive, Geometric, Scheme, method
from lengthen.core.errors import require_count
from lengthen.core.frequency import require_factor

from .ntk import NTKAware
from .rope import rotary_scheme


@dataclass(frozen=True)
class DynamicNTK(Adaptive):
    """NTK-aware scaling by s(T) = g T/L - (g - 1) for a text of T > L tokens, and the trained frequencies up to L.

    g = 1 is the paper's s = max(1, T/L); transformers calls g 'factor' and L 'max_position_embeddings'.
    """

    original: int
    growth: float = 1.0
    """g, how much s grows per trained length."""
    base: float = 10_000.0

    def __post_init__(self):
        require_count("DynamicNTK", "original", self.original, "tokens")
        require_factor("DynamicNTK", self.growth)
        Geometric(self.base)

    def at(self, tokens: int) -> NTKAware:
        require_count("DynamicNTK", "tokens", tokens, "tokens")
        lengths = max(tokens, self.original) / self.original
        return NTKAware(self.growth * lengths - (self.growth - 1), self.base)


@method(
    "dynamic_ntk",
    family="rescaling",
    paper="2309.00071",
    variants=({"factor": 1.0}, {"growth": 2.0, "fraction": 0.5, "interleaved": False}),
)
def dynamic_ntk(
    head_size: int,
    train_length: int,
    *,
    factor: float = 4.0,
    growth: float = 1.0,
    base: float = 10_000.0,
    fraction: float = 1.0,
    interleaved: bool = True,
) -> Scheme:
    """NTK-aware scaling by just as much as the length asks for, settled before the first token is read.

    factor: the length that it is settled for, over the trained one; texts up to the trained length take 1.
    growth: what transformers calls 'factor': s = growth * factor - (growth - 1); 1 is the paper's.
    base: before scaling, radians per token.
    fraction: share of each head that is turned.
    interleaved: pair channels (2i, 2i+1), or (i, i+R/2) as Hugging Face.
    """
    require_factor("dynamic_ntk", factor)
    rule = DynamicNTK(train_length, growth, base).at(round(factor * train_length))
    return rotary_scheme(rule, head_size, fraction, interleaved)
