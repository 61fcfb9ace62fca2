"""Randomised positions (Ruoss et al. 2023, arXiv:2305.16843)."""

import numpy as np
import torch
from torch import Tensor

from lengthen.core import LengthError, PositionMap, Scheme, UsageError, method
from lengthen.core.errors import require_count


class Randomised(PositionMap):
    """While training, the T tokens of a document stand at T distinct integers drawn from [0, limit) and sorted (section 3).

    Each document of each row has its own draw; the released code shares one over the batch. In evaluation the released
    code draws again, for a length that it knows. A decoder does not know how much will follow, so 'drawn' fixes one
    sorted set of `length` out of [0, limit) from `seed`, and token idx stands at its entry idx: cached decoding is exact.
    'plain' evaluates at idx itself.

    Raises LengthError for a training document longer than `limit`, and beyond `length` tokens under 'drawn'.
    """

    def __init__(self, limit: int, evaluate: str = "drawn", length: int | None = None, seed: int = 0):
        super().__init__()
        require_count("randomised", "limit", limit, "positions")
        require_count("randomised", "seed", seed, "draws", least=0)
        length = length if length is not None else limit
        require_count("randomised", "length", length, "tokens")
        if length > limit:
            raise UsageError(
                f"randomised cannot draw {length} distinct positions out of {limit}; lower 'length' or raise 'limit'."
            )
        if evaluate not in ("drawn", "plain"):
            raise UsageError(f"The 'evaluate' of randomised must be 'drawn' or 'plain', got {evaluate!r}.")
        self.limit = limit
        drawn = np.sort(np.random.default_rng(seed).choice(limit, length, replace=False))
        self.drawn = drawn if evaluate == "drawn" else None

    @property
    def reads_tokens(self) -> bool:
        """Only to learn the number of rows to draw for."""
        return self.training

    def forward(self, idx: Tensor, tokens: Tensor | None = None) -> Tensor:
        if self.training:
            return draw(idx if tokens is None else idx.expand(len(tokens), -1), self.limit)
        return idx if self.drawn is None else self._look_up(idx)

    def _look_up(self, idx: Tensor) -> Tensor:
        read, length = int(idx.max()) + 1, len(self.drawn)
        if read > length:
            spec = f"randomised:limit={max(2 * read, self.limit)},length={read}"
            raise LengthError(
                f"randomised drew {length} of {self.limit} positions for evaluation, got {read} tokens. "
                f"Read at most {length}, raise 'length' (and 'limit'), as in {spec!r}, or use 'evaluate=plain'."
            )
        return torch.where(idx < 0, idx, torch.from_numpy(self.drawn).to(idx.device)[idx.clamp_min(0)])


def draw(idx: Tensor, limit: int) -> Tensor:
    """int64 [B, T] -> int64 [B, T]: for each document a sorted sample of [0, limit) without replacement; -1 stays on padding.

    A document starts where `idx` is 0, or at the first token of a row.
    """
    real = idx >= 0
    first = real & ((idx == 0) | (real.cumsum(1) == 1))
    tokens = torch.bincount(first.flatten().cumsum(0)[real.flatten()] - 1)
    longest = int(tokens.max()) if len(tokens) else 0
    if longest > limit:
        raise LengthError(
            f"randomised cannot give {longest} tokens distinct positions out of {limit}. Raise 'limit' to at least {longest}, "
            "better several times that, or train on shorter sequences."
        )
    sample = torch.rand(len(tokens), limit, device=idx.device)
    shuffled = sample.topk(longest, dim=1).indices
    chosen = torch.zeros_like(sample, dtype=torch.bool)
    chosen.scatter_(1, shuffled, torch.arange(longest, device=idx.device) < tokens[:, None])
    # Both sides run through the documents in the same order, and `nonzero` through each sample in ascending order.
    return idx.masked_scatter(real, chosen.nonzero()[:, 1])


@method(
    "randomised",
    family="randomised",
    paper="2305.16843",
    modifies=True,
    limited=True,
    variants=({"evaluate": "plain"},),
)
def randomised(
    train_length: int, *, limit: int = 2048, evaluate: str = "drawn", length: int | None = None, seed: int = 0
) -> Scheme:
    """Sequences stand at sorted random positions while training, so that large positions are known before they are needed.

    limit: M, one more than the largest position, positions; far above the training length.
    evaluate: 'drawn' stands at one fixed sorted draw, 'plain' at 0, 1, 2, ...
    length: tokens that a drawn evaluation can read, at most `limit`; by default 8 training lengths, or `limit` if less.
    seed: of the draw for evaluation; training draws from torch's global generator.
    """
    require_count("randomised", "limit", limit, "positions")
    if train_length > limit:
        raise UsageError(
            f"randomised cannot give {train_length} training tokens distinct positions out of {limit}; "
            f"raise 'limit' to several times {train_length}."
        )
    return Scheme(positions=Randomised(limit, evaluate, length if length is not None else min(limit, 8 * train_length), seed))
