"""One forward over a long text: hidden states and the cache of all of it, and logits for some tokens at a time."""

import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicSlidingWindowLayer
from transformers.utils import ModelOutput

CELLS = 2**23
"""Most logits held at a time (32 MiB in float32)."""
DECODED = 5
"""Tokens decoded for a time, the first of which does not count."""


@dataclass(frozen=True)
class Prefilled:
    """A text that was read."""

    hidden: Tensor
    """[1, T, C], as the head takes it."""
    cache: Any
    """Of transformers, T tokens."""
    kind: type[ModelOutput]
    """What the backbone gives, which the model's head reads more of than hidden states."""


class _Given(nn.Module):
    """Stands in for a backbone, with hidden states that are there already."""

    def __init__(self, hidden: Tensor, kind: type[ModelOutput]):
        super().__init__()
        self.hidden, self.kind = hidden, kind

    def forward(self, *_: Any, **__: Any) -> ModelOutput:
        return self.kind(last_hidden_state=self.hidden)


def cache_name(model: PreTrainedModel) -> str:
    """What this model's forward calls its cache."""
    return next(n for n in ("cache", "past_key_values") if n in inspect.signature(model.forward).parameters)


def prefill(
    model: PreTrainedModel, ids: Tensor, tick: Callable[[float], None] = lambda share: None, cache: Any = None
) -> Prefilled:
    """Reads int64 [1, T] at once, without logits, into an empty cache (None: the model's own kind).

    `tick` hears the share of the layers that is done.
    """
    backbone = getattr(model, model.base_model_prefix)
    with _ticking(backbone, model.config.num_hidden_layers, tick):
        out = backbone(input_ids=ids, use_cache=True, **({} if cache is None else {cache_name(model): cache}))
    return Prefilled(out.last_hidden_state, out[cache_name(model)], type(out))


def head(model: PreTrainedModel, hidden: Tensor, kind: type[ModelOutput]) -> Tensor:
    """[1, T, C] -> float32 [T, V], by the model's own forward, so that whatever it does to logits is done."""
    name = model.base_model_prefix
    backbone = getattr(model, name)
    setattr(model, name, _Given(hidden, kind))
    try:
        return model(input_ids=hidden.new_zeros(1, hidden.shape[1], dtype=torch.long), use_cache=False)[0][0].float()
    finally:
        setattr(model, name, backbone)


def losses(model: PreTrainedModel, read: Prefilled, ids: Tensor) -> Tensor:
    """-log p of every token of int64 [1, T] from the second on, in nats: float64 [T - 1]."""
    rows = max(1, CELLS // model.config.vocab_size)
    targets = ids[0, 1:]
    blocks = zip(read.hidden[:, :-1].split(rows, dim=1), targets.split(rows), strict=True)
    return torch.cat([F.cross_entropy(head(model, h, read.kind), t, reduction="none").double() for h, t in blocks])


def proceed(model: PreTrainedModel, cache: Any, ids: Tensor) -> Tensor:
    """float32 [V]: what follows int64 [1, Q] behind the cached text. The cache grows; see `fork`."""
    return model(input_ids=ids, use_cache=True, logits_to_keep=1, **{cache_name(model): cache})[0][0, -1].float()


def fork(cache: Any) -> Any:
    """A cache that can grow while this one stays. Tensors are shared: caches replace theirs, and never write into them."""
    tensors = [t for part in (cache, *cache.layers) for t in vars(part).values() if isinstance(t, Tensor)]
    return copy.deepcopy(cache, {id(t): t for t in tensors})


def filled(model: PreTrainedModel, tokens: int) -> Any:
    """A cache as if `tokens` had been read, each like the first: all that a time depends on."""
    cache = prefill(model, torch.ones(1, 1, dtype=torch.long, device=model.device)).cache
    for layer in cache.layers:
        held = tokens
        if isinstance(layer, DynamicSlidingWindowLayer):
            held, layer.cumulative_length = min(tokens, layer.sliding_window - 1), tokens
        layer.keys, layer.values = (t.repeat(1, 1, held, 1) for t in (layer.keys, layer.values))
    return cache


def cache_bytes(cache: Any, tokens: int, wanted: int) -> int:
    """What keys and values take for `wanted` tokens, by what they take for `tokens`; a layer that holds fewer is full."""
    held = [(t.shape[-2], t.numel() * t.element_size()) for layer in cache.layers for t in (layer.keys, layer.values)]
    return sum(size * wanted // tokens if length == tokens else size for length, size in held)


@contextmanager
def _ticking(backbone: nn.Module, layers: int, tick: Callable[[float], None]) -> Iterator[None]:
    """Calls `tick` after every layer, where the backbone keeps its layers in one list."""
    stacks = [m for m in backbone.modules() if isinstance(m, nn.ModuleList) and len(m) == layers]
    say = lambda n: lambda *_: tick((n + 1) / layers)
    hooks = [layer.register_forward_hook(say(n)) for n, layer in enumerate(stacks[0])] if stacks else []
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
