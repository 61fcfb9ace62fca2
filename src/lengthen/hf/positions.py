"""A hook on the decoder of an extended model: positions follow from order, in every row."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lengthen.core import Refusal, UsageError, order

from .attention import NAME


def rows_of_their_own(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
    """A forward pre-hook: gives each row the positions of its own order, and refuses others.

    transformers counts positions from the left edge, padding included, where it gets none. Schemes that take positions apart
    (chunks, groups) need them counted from the first token.
    """
    _require_our_attention(module)
    given = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
    given |= given.pop("kwargs", {})
    expected = _expected(given)
    if expected is None:
        return None
    idx, valid = expected
    _require_agreement(given.get("position_ids"), idx, valid)
    return args, {**kwargs, "position_ids": idx.clamp_min(0)}


def no_documents(module: nn.Module, args: tuple, kwargs: dict) -> None:
    """A forward pre-hook where attention is transformers' own: it would drop `doc` and let documents see each other."""
    if kwargs.get("doc") is not None:
        raise Refusal(
            "transformers' own attention does not know doc, and this scheme runs in it. Extend with route='turned' to keep "
            "packed documents apart."
        )


def _require_our_attention(module: nn.Module) -> None:
    if module.config._attn_implementation != NAME:
        raise UsageError(
            f"This model was extended and then set to the attention {module.config._attn_implementation!r}, which knows "
            "nothing of its scheme. Set it back, or call restore() on its Extension."
        )


def _expected(given: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
    """Order of the new tokens int64 [B, T], and which are real; None: transformers' own count is right."""
    mask, doc, ids = given.get("attention_mask"), given.get("doc"), given.get("position_ids")
    if not (mask is None or (isinstance(mask, Tensor) and mask.dim() == 2)):
        return None
    new = next(given[n] for n in ("input_ids", "inputs_embeds") if given.get(n) is not None)
    if mask is None and doc is None and ids is None:
        return None
    shape = mask if mask is not None else doc if doc is not None else _history(given, new)
    valid = torch.ones_like(shape, dtype=torch.bool) if mask is None else mask.bool()
    idx = order(valid, doc).idx[:, -new.shape[1] :]
    return idx, valid[:, -new.shape[1] :]


def _history(given: Mapping[str, Any], new: Tensor) -> Tensor:
    cache = next((given[n] for n in ("cache", "past_key_values") if given.get(n) is not None), None)
    past = 0 if cache is None else int(cache.get_seq_length())
    return torch.ones(new.shape[0], past + new.shape[1], dtype=torch.long, device=new.device)


def _require_agreement(ids: Tensor | None, idx: Tensor, valid: Tensor) -> None:
    if ids is None or bool(((ids == idx) | ~valid).all()):
        return
    row, token = torch.nonzero((ids != idx) & valid)[0].tolist()
    raise Refusal(
        f"This model counts positions itself: token {token} of row {row} is number {int(idx[row, token])} of its text, and "
        f"position_ids says {int(ids.expand_as(idx)[row, token])}. Leave position_ids out; pass doc for packed documents, and "
        "put skipped or scaled positions into the scheme."
    )
