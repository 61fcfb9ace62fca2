"""A cache that forgets: it keeps the first tokens and a window, and its memory does not grow with the text."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

from lengthen.core import Coordinates, Refusal, UsageError

from .kept import Kept


class BoundedCache(Cache):
    """Keys and values of the first `kept.sinks` tokens of each row's text and of the last `kept.window` - 1.

    For models under `extend` with a scheme that shows no others; `Extension.cache` makes one. Tokens are counted from
    where each row's text begins, so padding on the left takes no room of the first tokens. Everything older is dropped
    after each forward, for good: it cannot be cropped.
    """

    def __init__(self, kept: Kept, layers: int):
        self.kept = kept
        self.tokens = 0
        """Tokens read so far."""
        self.index: Tensor | None = None
        """int64 [B|1, N]: which tokens are held, in order."""
        self.held: Tensor | None = None
        """int64 [B|1, N]: where these lie among what was held before and what was new."""
        self.step = 0
        """Forwards so far."""
        super().__init__(layers=[_Layer(self) for _ in range(layers)])

    def admit(self, line: Coordinates, new: int) -> Tensor:
        """Makes room for the last `new` tokens of all tokens so far -> int64 [B|1, N + new], which tokens are there to be seen.

        Called before each forward, by the hook of an extended model.
        """
        if line.doc is not None:
            raise Refusal("A cache that forgets holds one text in each row. Read packed documents without a cache.")
        fresh = torch.arange(self.tokens, self.tokens + new, device=line.idx.device)[None]
        seen = fresh if self.index is None else torch.cat((self.index, fresh.expand(len(self.index), -1)), dim=1)
        seen = seen.expand(max(len(seen), len(line.idx)), -1)
        self.held = self._choice(line.idx.expand(len(seen), -1).gather(1, seen), seen)
        self.index, self.tokens, self.step = seen.gather(1, self.held), self.tokens + new, self.step + 1
        return seen

    def _choice(self, order: Tensor, seen: Tensor) -> Tensor:
        """int64 [B|1, N]: the first tokens of each text, and then the newest."""
        most = min(self.kept.tokens - 1, seen.shape[1])
        first = (order >= 0) & (order < self.kept.sinks)
        rank = seen.masked_fill(first, torch.iinfo(torch.int64).max)
        return rank.topk(most, dim=1).indices.sort(dim=1).values

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.tokens

    def crop(self, *_: int) -> None:
        raise Refusal(
            f"This cache keeps {self.kept.tokens} tokens and has dropped the rest, so it cannot go back. Read the text again."
        )

    def reset(self) -> None:
        """Empty again."""
        self.tokens, self.index, self.held, self.step = 0, None, None, 0
        for layer in self.layers:
            layer.keys, layer.values, layer.step = None, None, 0

    def batch_select_indices(self, indices: Tensor) -> None:
        self._rows(indices)
        super().batch_select_indices(indices)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self._rows(beam_idx)
        super().reorder_cache(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.index is not None and len(self.index) > 1:
            self.index = self.index.repeat_interleave(repeats, dim=0)
        super().batch_repeat_interleave(repeats)

    def _rows(self, rows: Tensor) -> None:
        if self.index is not None and len(self.index) > 1:
            self.index = self.index[rows.to(self.index.device)]


class _Layer(CacheLayerMixin):
    """What one attention holds, [B, G, N, D]."""

    is_sliding = False

    def __init__(self, cache: BoundedCache):
        super().__init__()
        self.cache, self.step = cache, 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        self.device, self.is_initialized = key_states.device, True

    def update(self, key_states: Tensor, value_states: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        self.step += 1
        if self.step != self.cache.step:
            raise UsageError(
                "A cache that forgets works in a model under the extension that made it, which says what to keep. This model is "
                "not extended, or not any longer."
            )
        if self.keys is None:
            self.lazy_initialization(key_states, value_states)
        keys, values = torch.cat((self.keys, key_states), dim=2), torch.cat((self.values, value_states), dim=2)
        self.keys, self.values = (self._remaining(x) for x in (keys, values))
        return keys, values

    def _remaining(self, x: Tensor) -> Tensor:
        held = self.cache.held
        if len(held) == 1:
            return x[:, :, held[0]]
        return x.gather(2, held[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3]))

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cache.tokens + query_length, 0

    def get_seq_length(self) -> int:
        return self.cache.tokens

    def get_max_length(self) -> int:
        return -1


def bounded_cache(needs: Sequence[Kept | None]) -> BoundedCache:
    """One for layers that need so much each. Raises Refusal where one needs the whole text."""
    if None in needs:
        raise Refusal(
            f"{sum(n is None for n in needs)} of {len(needs)} layers see the whole text, so no cache of theirs can stay small. "
            "Methods that forget: streaming_llm, lm_infinite, window, sinks, bca."
        )
    most = needs[0]
    for need in needs[1:]:
        most = most | need
    return BoundedCache(most, len(needs))
