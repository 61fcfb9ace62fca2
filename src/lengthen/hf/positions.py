"""A hook on the decoder of an extended model: positions follow from order, in every row."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lengthen.core import Coordinates, Layout, Refusal, UsageError, order

from .attention import NAME
from .bounded import BoundedCache
from .layout import Places


def rows_of_their_own(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
    """A forward pre-hook: gives each row the positions of its own order, and refuses others.

    transformers counts positions from the left edge, padding included, where it gets none. Schemes that take positions apart
    (chunks, groups) need them counted from the first token. `doc` int64 [B, T], in `model(..., doc=doc)`, keeps packed
    documents apart: it goes into the mask here, since not every model hands further arguments to its attention.
    """
    _require_our_attention(module)
    given = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
    given |= given.pop("kwargs", {})
    cache, line = cache_of(given), _line(given)
    if line is None and isinstance(cache, BoundedCache):
        line = Coordinates.plain(_past(given) + _new(given).shape[1], device=_new(given).device)
    if line is None:
        return None
    new = line.take(slice(line.tokens - _new(given).shape[1], None))
    _require_agreement(given.get("position_ids"), new)
    kwargs = {**kwargs, "position_ids": new.idx.clamp_min(0)}
    if isinstance(cache, BoundedCache):
        keys = _some(line, cache.admit(line, new.tokens))
        kwargs["attention_mask"] = Places.of(len(_new(given)), Layout(new, keys), slice(None), None)
    elif kwargs.pop("doc", None) is not None:
        kwargs["attention_mask"] = Places.of(len(line.doc), Layout(line, line), slice(None), None)
    return args, kwargs


def no_documents(module: nn.Module, args: tuple, kwargs: dict) -> None:
    """A forward pre-hook where attention is transformers' own: it would drop `doc` and let documents see each other."""
    if kwargs.get("doc") is not None:
        raise Refusal(
            "transformers' own attention does not know doc, and this scheme runs in it. Extend with route='turned' to keep "
            "packed documents apart."
        )


def counted(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
    """A forward pre-hook where attention is transformers' own: rows with padding are counted from their first token."""
    given = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
    mask = given.get("attention_mask")
    if given.get("position_ids") is not None or not isinstance(mask, Tensor) or mask.dim() != 2:
        return None
    line = order(mask[:, : _past(given) + _new(given).shape[1]].bool(), None)
    return args, {**kwargs, "position_ids": line.idx[:, -_new(given).shape[1] :].clamp_min(0)}


def _require_our_attention(module: nn.Module) -> None:
    if module.config._attn_implementation != NAME:
        raise UsageError(
            f"This model was extended and then set to the attention {module.config._attn_implementation!r}, which knows "
            "nothing of its scheme. Set it back, or call restore() on its Extension."
        )


def _line(given: Mapping[str, Any]) -> Coordinates | None:
    """All tokens so far, in order; None: transformers' own count is right, or the mask is a layout already."""
    mask, doc, ids = given.get("attention_mask"), given.get("doc"), given.get("position_ids")
    if (mask is None and doc is None and ids is None) or not (mask is None or (isinstance(mask, Tensor) and mask.dim() == 2)):
        return None
    new = _new(given)
    tokens = _past(given) + new.shape[1]
    if doc is not None and doc.shape[1] != tokens:
        raise UsageError(
            f"doc names the documents of {doc.shape[1]} tokens, and the cache and the input together hold {tokens}. Packed rows "
            "are read at once, without a cache."
        )
    ones = torch.ones(len(new), tokens, dtype=torch.bool, device=new.device)
    return order(ones if mask is None else mask[:, :tokens].bool(), doc)


def _some(line: Coordinates, which: Tensor) -> Coordinates:
    """The tokens `which` [B|1, N] of a line."""
    take = lambda t: None if t is None else t.expand(len(which), -1).gather(1, which)
    return Coordinates(take(line.idx), take(line.pos), None, take(line.valid))


def _new(given: Mapping[str, Any]) -> Tensor:
    return next(given[n] for n in ("input_ids", "inputs_embeds") if given.get(n) is not None)


def cache_of(given: Mapping[str, Any]) -> Any:
    """The cache among the arguments of a forward; None where there is none."""
    return next((given[n] for n in ("cache", "past_key_values") if given.get(n) is not None), None)


def _past(given: Mapping[str, Any]) -> int:
    cache = cache_of(given)
    return 0 if cache is None else int(cache.get_seq_length())


def _require_agreement(ids: Tensor | None, new: Coordinates) -> None:
    if ids is None or bool(((ids == new.idx) | ~new.valid).all()):
        return
    row, token = torch.nonzero((ids != new.idx) & new.valid)[0].tolist()
    raise Refusal(
        f"This model counts positions itself: token {token} of row {row} is number {int(new.idx[row, token])} of its text, and "
        f"position_ids says {int(ids.expand_as(new.idx)[row, token])}. Leave position_ids out; pass doc for packed documents, "
        "and put skipped or scaled positions into the scheme."
    )
