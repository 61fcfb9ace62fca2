"""ALiBi: attention with linear biases (Press et al. 2022, arXiv:2108.12409)."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lengthen.core import DistanceTerm, Everywhere, Scheme, UsageError, method
from lengthen.core.errors import require_count


def geometric_slopes(heads: int) -> list[float]:
    """2^(-8h/H) for h = 1..H, nats per token: the sentence of the paper's section 3, for any H."""
    return [2.0 ** (-8 * h / heads) for h in range(1, heads + 1)]


def authors_slopes(heads: int) -> list[float]:
    """The released rule, nats per token: geometric for a power of two, else those of the power below, followed by
    every second slope of the power above. Not sorted; BLOOM and MPT use the same numbers in the same order."""
    below = 2 ** math.floor(math.log2(heads))
    return geometric_slopes(below) + geometric_slopes(2 * below)[::2][: heads - below]


class ALiBi(DistanceTerm):
    """b_h(d) = -m_h |d|: a linear penalty on distance, per head (section 3).

    `asymmetric`, for bidirectional models: keys before the query (d > 0) are penalised by m_h (|d| - 1/2), so that the
    two directions differ, as the released code of Ruoss et al. 2023 (arXiv:2305.16843) does; otherwise both directions
    are alike. Slopes in nats per token.
    """

    def __init__(self, heads: int, slopes: str = "authors", asymmetric: bool = False):
        super().__init__()
        require_count("ALiBi", "heads", heads, "heads")
        rules = {"authors": authors_slopes, "geometric": geometric_slopes}
        if slopes not in rules:
            raise UsageError(f"The 'slopes' of ALiBi must be 'authors' or 'geometric', got {slopes!r}.")
        self.slopes, self.asymmetric = tuple(rules[slopes](heads)), asymmetric

    def at(self, distance: Tensor) -> Tensor:
        steps = distance.abs()
        if self.asymmetric:
            steps = steps - 0.5 * (distance > 0)
        return penalty(self.slopes, steps)


def penalty(slopes: Sequence[float], steps: Tensor) -> Tensor:
    """-m_h times `steps` [...]: nats [H, ...], in the type of `steps`."""
    per_head = torch.tensor(slopes, dtype=steps.dtype, device=steps.device)
    return -per_head.view(-1, *[1] * steps.dim()) * steps


@method(
    "alibi",
    family="additive bias",
    paper="2108.12409",
    variants=({"slopes": "geometric"}, {"bidirectional": "symmetric"}, {"bidirectional": "asymmetric"}),
)
def alibi(heads: int, *, slopes: str = "authors", bidirectional: str = "no") -> Scheme:
    """Linear penalty on distance, steeper for earlier heads.

    slopes: 'authors' (the released rule for any number of heads) or 'geometric' (ratio 2^(-8/H)); nats per token.
    bidirectional: 'no' (causal), 'symmetric' or 'asymmetric'.
    """
    if bidirectional not in ("no", "symmetric", "asymmetric"):
        raise UsageError(f"The 'bidirectional' of alibi must be 'no', 'symmetric' or 'asymmetric', got {bidirectional!r}.")
    term = ALiBi(heads, slopes, asymmetric=bidirectional == "asymmetric")
    return Scheme(terms=[term], pattern=None if bidirectional == "no" else Everywhere())
