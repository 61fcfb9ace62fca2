"""T5's buckets beyond their training: position interpolation of the distances (Chen et al. 2023, arXiv:2306.15595)."""

from lengthen.core import Everywhere, Scheme, method

from .alibi_interpolation import Slowed
from .t5 import T5Bias


@method("t5_interpolation", family="rescaling", paper="2306.15595", variants=({"bidirectional": True}, {"factor": 1.0}))
def t5_interpolation(
    heads: int,
    head_size: int,
    width: int,
    *,
    factor: float = 4.0,
    buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = False,
) -> Scheme:
    """T5's bias with every distance divided by a factor before its bucket is looked up.

    bucket(d / s): the last bucket begins s times as far away, and neighbours share buckets. For T5 checkpoints.

    factor: s, the new length over the trained one.
    buckets: of distance, both directions together.
    max_distance: from where all distances share a bucket before scaling, tokens.
    bidirectional: half of the buckets for keys after the query; attention in both directions.
    """
    term = T5Bias(heads, width, buckets, max_distance, bidirectional, head_size**0.5)
    return Scheme(terms=[Slowed(term, factor)], pattern=Everywhere() if bidirectional else None)
