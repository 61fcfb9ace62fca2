"""What stands in place of a mask in an extended model: where queries and keys stand."""

from typing import Any

import torch
from torch import Tensor

from lengthen.core import Causal, Coordinates, Layout, Pattern, Refusal, UsageError, order
from lengthen.methods.window import Window


class Places(Tensor):
    """Handed to every layer of one kind, in one forward, where transformers would hand a mask.

    It looks like a mask of [B, 1, Q, K] that shows nothing, in one byte of memory: generate() makes masks early and passes
    them through checks of their shape. Whatever is computed from it is a plain tensor, which our attention refuses.
    """

    stand: Layout
    keys: slice
    """Which of the keys that come out of the cache the layout stands for; the rest is not written yet."""
    window: int | None
    """Tokens of the model's own sliding window, the query included."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    def contiguous(self, *_: Any, **__: Any) -> "Places":
        """Itself: there is nothing to copy, and a copy would lose the layout."""
        return self

    @staticmethod
    def of(rows: int, layout: Layout, keys: slice, window: int | None) -> "Places":
        nothing = torch.zeros((), dtype=torch.bool, device=layout.q.idx.device)
        made = nothing.expand(rows, 1, layout.q.tokens, layout.k.tokens).as_subclass(Places)
        made.stand, made.keys, made.window = layout, keys, window
        return made


def places(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **_: Any,
) -> Places:
    """A mask function of transformers' AttentionMaskInterface that makes a layout instead.

    Order is counted from `attention_mask` [B, T] row by row, wherever the padding lies. Documents are never guessed from
    positions: they are an argument of their own. Raises Refusal for masks that the caller composes with the model's.
    """
    if use_vmap:
        raise Refusal("An extended model attends causally, and this call combines the causal mask with one of its own.")
    stop = int(q_offset) + q_length
    keys = slice(0, min(kv_length, stop - kv_offset))
    line = _line(attention_mask, stop, device)
    layout = Layout(line.take(slice(int(q_offset), stop)), line.take(slice(kv_offset, stop)))
    return Places.of(batch_size, layout, keys, local_size)


def _line(mask: Tensor | None, tokens: int, device: torch.device | str) -> Coordinates:
    """Every token so far."""
    if mask is None:
        return Coordinates.plain(tokens, device=device)
    if mask.shape[1] < tokens:
        raise UsageError(
            f"The attention_mask covers {mask.shape[1]} tokens, and the cache and the input together hold {tokens}. "
            "Pass one that covers the cached tokens too."
        )
    valid = mask[:, :tokens].bool()
    return Coordinates.plain(tokens, device=device) if bool(valid.all()) else order(valid, None)


def checked_places(mask_function: Any, local_size: int | None = None, device: Any = "cpu", **rest: Any) -> Places:
    """The same, where transformers' own mask is the causal one, or a causal window, at points around its border."""
    if local_size == 0:
        # Qwen2-MoE without sliding layers makes a mask for them all the same, which shows nothing and nobody gets.
        return places(local_size=0, device=device, **rest)
    pattern: Pattern = Causal() if local_size is None else Window(local_size)
    size = local_size if local_size is not None else 64
    at = torch.tensor([0, 1, size - 1, size, size + 1, 2 * size, 2 * size + 1], device=device)
    zero = torch.zeros((), dtype=torch.long, device=device)
    shown = mask_function(zero, zero, at[:, None], at[None]).expand(len(at), len(at))
    if not torch.equal(shown, pattern(at[:, None], at[None])):
        raise Refusal(
            f"Its attention mask is neither causal nor a causal sliding window (transformers calls it local to {local_size} "
            "tokens): an encoder, a prefix or a chunked mask. Only causal decoders can be extended."
        )
    return places(local_size=local_size, device=device, **rest)
