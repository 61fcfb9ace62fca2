"""ALiBi beyond its training: position interpolation of the biases (Al-Khateeb et al. 2023, arXiv:2310.13017)."""

from torch import Tensor

from lengthen.core import DistanceTerm, Scheme, method
from lengthen.core.frequency import require_factor

from .alibi import ALiBi


class Slowed(DistanceTerm):
    """b(d / s): a bias that takes every distance for s times as short."""

    def __init__(self, term: DistanceTerm, factor: float):
        super().__init__()
        require_factor("an interpolated bias", factor)
        self.term, self.factor = term, factor

    def at(self, distance: Tensor) -> Tensor:
        return self.term.at(distance / self.factor)


@method("alibi_interpolation", family="rescaling", paper="2310.13017", variants=({"factor": 1.0}, {"slopes": "geometric"}))
def alibi_interpolation(heads: int, *, factor: float = 4.0, slopes: str = "authors") -> Scheme:
    """ALiBi with its slopes divided by a factor: no bias grows beyond those that training saw.

    -m_h d / s. For checkpoints with ALiBi (BLOOM, MPT, Falcon-RW); a static rule, so the cache is as it was.

    factor: s, the new length over the trained one.
    slopes: 'authors' (the released rule for any number of heads) or 'geometric' (ratio 2^(-8/H)); nats per token.
    """
    return Scheme(terms=[Slowed(ALiBi(heads, slopes), factor)])
