"""T5 bias: a learned number per head and bucket of distances (Raffel et al. 2020, arXiv:1910.10683, section 2.1)."""

import torch
from torch import Tensor, nn

from lengthen.core import DistanceTerm, Everywhere, Scheme, UsageError, method
from lengthen.core.errors import require_count, require_positive


def first_distances(buckets: int, max_distance: int) -> list[float]:
    """Where each bucket of one direction begins, in tokens: float64, strictly growing, from 0.

    With e = buckets // 2, the buckets 0..e-1 hold one distance each, and bucket b >= e begins at
    e * (max_distance / e)^((b - e) / (buckets - e)): the inverse of T5's floor of a logarithm. Boundaries that are whole
    numbers but for rounding are made whole, so that 32 and 64 of the default land where exact arithmetic puts them.
    """
    exact = buckets // 2
    grown = (exact * (max_distance / exact) ** ((b - exact) / (buckets - exact)) for b in range(exact, buckets))
    return [*map(float, range(exact)), *(float(round(x)) if abs(x - round(x)) < 1e-9 * x else x for x in grown)]


class T5Bias(DistanceTerm):
    """b_h(d) = gain * table[h, bucket(d)], nats.

    Causal: bucket(max(d, 0)). Bidirectional: half of the buckets each; keys after the query (d < 0) take the upper half.
    Distances may be real; they are compared with boundaries, so no logarithm of zero or rounding of one is involved.

    Two facts of T5 decide the size of `table`. T5 has no 1/sqrt(D) on q . k, but its queries start smaller by as much, so
    its bias, N(0, 1/C) as Hugging Face starts it, is in the units of our scaled scores: gain = 1 is that plain sum. An
    optimiser that moves each number by the learning rate (Adam) then needs thousands of steps to move a bias by a few
    nats; a gain of sqrt(D), our default and x-transformers', makes it learn that much faster. The table starts at
    N(0, 1/C) / gain, so the model starts the same whatever the gain.
    """

    def __init__(
        self, heads: int, width: int, buckets: int = 32, max_distance: int = 128, bidirectional: bool = False, gain: float = 1.0
    ):
        super().__init__()
        require_count("T5Bias", "heads", heads, "heads")
        require_count("T5Bias", "width", width, "channels")
        require_positive("T5Bias", "gain", gain, "nats per unit of the table")
        sides = 2 if bidirectional else 1
        require_count("T5Bias", "buckets", buckets, "buckets", least=2 * sides)
        require_count("T5Bias", "max_distance", max_distance, "tokens")
        side = buckets // sides
        if buckets % sides:
            raise UsageError(f"Two directions share the 'buckets' of T5Bias evenly, so they must be even, got {buckets}.")
        if max_distance <= side // 2:
            raise UsageError(
                f"The 'max_distance' of T5Bias must exceed the {side // 2} distances that have buckets of their own, "
                f"got {max_distance}. Raise it or use fewer than {buckets} buckets."
            )
        self.bidirectional, self.side, self.gain = bidirectional, side, gain
        self.first = tuple(first_distances(side, max_distance))
        self.table = nn.Parameter(torch.randn(heads, buckets) * width**-0.5 / gain)

    def bucket(self, distance: Tensor) -> Tensor:
        """q_pos - k_pos [...] -> int64 [...]."""
        steps = distance.abs() if self.bidirectional else distance.clamp_min(0)
        first = torch.tensor(self.first, dtype=distance.dtype, device=distance.device)
        bucket = torch.bucketize(steps.contiguous(), first, right=True) - 1
        return bucket + self.side * (distance < 0) if self.bidirectional else bucket

    def at(self, distance: Tensor) -> Tensor:
        bucket = self.bucket(distance)
        rows = self.table.to(distance.dtype).index_select(1, bucket.flatten())
        return self.gain * rows.view(-1, *distance.shape)


@method("t5", family="additive bias", paper="1910.10683", variants=({"bidirectional": True}, {"gain": 1.0}))
def t5(
    heads: int,
    head_size: int,
    width: int,
    *,
    buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = False,
    gain: float | None = None,
) -> Scheme:
    """A learned bias per head for each of 32 buckets of distance, logarithmic up to 128 tokens.

    buckets: of distance, both directions together.
    max_distance: from where all distances share a bucket, tokens.
    bidirectional: half of the buckets for keys after the query; attention in both directions.
    gain: multiplies the table, and so the speed at which it learns; None is sqrt(head size), 1 is T5's plain sum.
    """
    gain = gain if gain is not None else head_size**0.5
    term = T5Bias(heads, width, buckets, max_distance, bidirectional, gain)
    return Scheme(terms=[term], pattern=Everywhere() if bidirectional else None)
