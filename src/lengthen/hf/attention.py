"""The attention of an extended model, as transformers' AttentionInterface wants it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from lengthen.backends import attend
from lengthen.core import Coordinates, Layout, Refusal, Scheme, UsageError

from .few import attend_few, serves
from .layout import Places, places

NAME = "lengthen"
"""How transformers knows our attention and our mask function."""
CARRIED = "lengthen"
"""The attribute of an attention module that holds what it carries."""
FOREIGN = {"softcap": "caps its logits", "s_aux": "adds sink logits", "position_bias": "adds a bias of its own"}
"""Arguments of other attention functions that change the result, with what they do."""


@dataclass(frozen=True)
class Carried:
    """What an attention module of an extended model runs."""

    scheme: Scheme
    keys_turned: bool
    """Whether the keys come turned, through the model's rotary module."""
    backend: str | None
    attend: Callable[..., Tensor] = attend
    """What computes it: training may take a cheaper one."""


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Places,
    scaling: float | None = None,
    dropout: float = 0.0,
    **rest: Any,
) -> tuple[Tensor, None]:
    """[B, H, Q, D] over keys and values [B, G, K, D] -> ([B, Q, H, D], no weights)."""
    _require_ours(module, attention_mask, dropout, rest)
    carried: Carried = module.__dict__[CARRIED]
    key, value = key[:, :, attention_mask.keys], value[:, :, attention_mask.keys]
    layout = _standing(carried.scheme, attention_mask.stand)
    if carried.backend is None and carried.attend is attend and serves(carried.scheme, query.shape[2]):
        by = scaling if scaling is not None else query.shape[-1] ** -0.5
        return attend_few(carried.scheme, query, key, value, layout, by, carried.keys_turned).transpose(1, 2).contiguous(), None
    out = carried.attend(
        carried.scheme, query, key, value, layout, scale=scaling, backend=carried.backend, keys_turned=carried.keys_turned
    )
    return out.transpose(1, 2).contiguous(), None


def _require_ours(module: nn.Module, mask: Any, dropout: float, rest: dict[str, Any]) -> None:
    if not isinstance(mask, Places):
        got = "no mask" if mask is None else f"a mask of type {type(mask).__name__}"
        raise UsageError(
            f"The {NAME!r} attention got {got}; without our mask function it would not be causal. Pass attention_mask as "
            f"[rows, tokens], and select the attention by extend(), not by attn_implementation={NAME!r}."
        )
    if CARRIED not in module.__dict__:
        raise UsageError(f"The {NAME!r} attention runs in models that extend() prepared; {type(module).__name__} is not one.")
    if dropout:
        raise Refusal(f"The {NAME!r} attention has no dropout, got {dropout}. Set config.attention_dropout to 0.")
    for name, what in FOREIGN.items():
        if rest.get(name) is not None:
            raise Refusal(f"This model {what} ({name}), which the {NAME!r} attention does not.")


def _standing(scheme: Scheme, layout: Layout) -> Layout:
    """The layout at the positions that the scheme gives to order."""
    if scheme.positions is None:
        return layout
    at = lambda line: Coordinates.at(line, scheme.position(line.idx)[0])
    return layout.remember(("positions", scheme), lambda: Layout(at(layout.q), at(layout.k)))


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, places)
