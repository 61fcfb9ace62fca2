"""S2: shifted sparse attention (Chen et al. 2023, LongLoRA, arXiv:2309.12307, section 3.2), without its wrap-around.

Tokens are cut into groups of G that attend within themselves; for the second half of the heads the cuts lie half a group
further on, so that neighbouring groups hear of each other. The released code makes the shift by rolling the sequence, which
puts its first half group behind its last one, in one group, where early tokens attend to late ones. Here the half groups at
either end are groups of their own.

Only training is cheaper: the tuned model is read with full attention.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthen.backends import attend
from lengthen.core import Layout, Pattern, Refusal, Scheme, UsageError
from lengthen.core.errors import require_count
from lengthen.core.patterns import Span, interval
from lengthen.core.scheme import meet

from .way import SHIFTED, Way


@dataclass(frozen=True)
class Groups(Pattern):
    """j <= i within one group: (i + shift) // tokens = (j + shift) // tokens."""

    tokens: int
    shift: int = 0

    causal = True
    relative = False

    def __call__(self, i: Tensor, j: Tensor) -> Tensor:
        return (j <= i) & ((i + self.shift) // self.tokens == (j + self.shift) // self.tokens)

    def spans(self, first: int, last: int, keys: int) -> tuple[Span, ...]:
        start, stop = max(0, (first + self.shift) // self.tokens * self.tokens - self.shift), min(last + 1, keys)
        return ((start, stop),) if start < stop else ()

    def intervals(self, i: Tensor, keys: int) -> Tensor:
        return interval((i + self.shift) // self.tokens * self.tokens - self.shift, i + 1, keys)


@dataclass(frozen=True)
class ShiftedSparse(Way):
    """Rows as long as the target, attended in groups."""

    group: int | None = None
    """G, tokens; None: a quarter of the target, as the paper."""

    def __post_init__(self):
        super().__post_init__()
        require_count("ShiftedSparse", "group", self.size, "tokens", least=2)
        if self.size % 2 or self.size > self.target:
            raise UsageError(
                f"Groups of S2 attention are shifted by half and fit into the target, so they have an even number of tokens, at "
                f"most {self.target}, got {self.size}. Try {max(2, self.target // 8 * 2)}."
            )

    @property
    def size(self) -> int:
        """`group`, its default filled in, even."""
        return self.group if self.group is not None else max(2, self.target // 8 * 2)

    @property
    def row(self) -> int:
        return self.target

    @property
    def arms(self) -> tuple[str, ...]:
        return (SHIFTED,)


class ShiftedAttention:
    """Stands in for `backends.attend` during training."""

    def __init__(self, group: int):
        self.group = group
        self._made: dict[Scheme, tuple[Scheme, Scheme]] = {}

    def __call__(self, scheme: Scheme, q: Tensor, k: Tensor, v: Tensor, layout: Layout, **how) -> Tensor:
        """q [B, H, T, D], k and v [B, G, T, D] -> [B, H, T, D]: heads below H // 2 in groups, the others in shifted ones."""
        half, share = q.shape[1] // 2, q.shape[1] // k.shape[1]
        if not half:
            raise Refusal("S2 attention gives half of the heads shifted groups, and this model has one head.")
        straight, shifted = self._schemes(scheme)
        if half % share:  # the border lies inside a group of heads that share keys
            k, v, share = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1), 1
        cut = half // share
        low = attend(straight, q[:, :half], k[:, :cut], v[:, :cut], layout, **how)
        high = attend(shifted, q[:, half:], k[:, cut:], v[:, cut:], layout, **how)
        return torch.cat((low, high), dim=1)

    def _schemes(self, scheme: Scheme) -> tuple[Scheme, Scheme]:
        if scheme not in self._made:
            if scheme.terms or scheme.value_terms or scheme.branches:
                raise Refusal(
                    "S2 attention cuts heads and positions into groups, and terms or branches of this scheme belong to all of "
                    "them. Tune it at full length, or with a scheme that only turns."
                )
            under = lambda shift: scheme.with_pattern(meet([scheme.pattern, Groups(self.group, shift)]))
            self._made[scheme] = under(0), under(self.group // 2)
        return self._made[scheme]
