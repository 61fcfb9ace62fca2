"""What a model is made of, seen by running it: its rotary modules, and the attentions that go through the interface."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import nan
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

from lengthen.core import Refusal

from .attention import FOREIGN
from .layout import Places, checked_places
from .own import own_spectra
from .rotary import Constant, Pairing
from .spectrum import Spectrum
from .swap import Slot, attending, evaluating, replaced

SURVEY = "lengthen_survey"
"""How transformers knows the attention that only looks."""
TOKENS = 8
POSITIONS = 5
"""Of the tables that are looked at."""


@dataclass(frozen=True)
class Layer:
    """One attention, as it called the interface."""

    module: nn.Module
    layer_type: str | None
    """Whose spectrum it is turned with; None where the model has one for all."""
    turned: bool
    heads: int
    groups: int
    size: int
    """Channels of a head."""
    window: int | None
    """Tokens of its sliding window."""


@dataclass(frozen=True)
class Survey:
    """All that extending a model needs to know of it."""

    model: PreTrainedModel
    slots: tuple[Slot, ...]
    layers: tuple[Layer, ...]
    table: Pairing
    """How the rotary module lays out cosines and sines."""
    pairing: Pairing
    """Which channels of queries and keys turn together."""
    channels: int
    """R, how many channels of each head are turned."""
    spectra: Mapping[str | None, Spectrum]
    """By layer type, what the configuration declares, and the rotary modules were seen to do."""

    @property
    def types(self) -> list[str | None]:
        """The layer types that have a spectrum of their own and layers that use it; [None]: one for all."""
        return list(dict.fromkeys(layer.layer_type for layer in self.layers if layer.turned))


def require_model(model: Any) -> None:
    """Refuses what is no model of transformers."""
    if not isinstance(model, PreTrainedModel):
        raise Refusal(f"extend() takes a model of transformers, got {type(model).__name__}.")


def survey(model: PreTrainedModel) -> Survey:
    """Looks at a model without changing it. Raises Refusal, with the reason, for one that cannot be extended."""
    require_model(model)
    slots = _slots(model)
    spectra = own_spectra(model.config)
    _require_some(model, spectra)
    table, channels = _table(model, slots, spectra)
    own = set(spectra)
    # The attention that looks gives zeros, so every layer sees the same in all three passes.
    marked, still, quarter = (_pass(model, slots, Constant(channels, *turn)) for turn in ((nan, nan), (1.0, 0.0), (0.0, 1.0)))
    layers = tuple(_layer(model, call, own, channels) for call in marked)
    used = [n for n, layer in enumerate(layers) if layer.turned]
    _require_some(model, used)
    pairs = {_pairing(still[n], quarter[n], channels) for n in used}
    if len(pairs) > 1:
        raise Refusal(f"The layers of {type(model).__name__} pair their channels in {len(pairs)} ways.")
    return Survey(model, slots, layers, table, pairs.pop(), channels, spectra)


def _require_some(model: PreTrainedModel, turned: Collection) -> None:
    if not turned:
        raise Refusal(f"No attention of {type(model).__name__} turns its queries by the rotary module.")


@dataclass(frozen=True)
class Call:
    """One call of the attention interface."""

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    window: int | None
    rest: Mapping[str, Any]


def _pass(model: PreTrainedModel, slots: tuple[Slot, ...], rotary: nn.Module) -> list[Call]:
    """The calls of one forward under that rotary module."""
    found: list[Call] = []
    ids = torch.arange(1, TOKENS + 1, device=model.device)[None] % model.config.vocab_size
    with _recording(found), evaluating(model), replaced(slots, rotary), attending(model, SURVEY):
        model(ids, use_cache=False)
    if not found:
        raise Refusal(f"No attention of {type(model).__name__} went through transformers' AttentionInterface.")
    return found


def _pairing(still: Call, quarter: Call, channels: int) -> Pairing:
    """Which channels were turned together, by a quarter turn."""
    raw, turned = still.query[..., :channels], quarter.query[..., :channels]
    for pairing in Pairing:
        if torch.allclose(pairing.quarter(raw), turned, rtol=1e-4, atol=1e-5):
            return pairing
    raise Refusal(f"{type(still.module).__name__} does not turn pairs of channels by the tables that it gets.")


def _slots(model: PreTrainedModel) -> tuple[Slot, ...]:
    kind = type(model).__name__
    if model.config.get_text_config() is not model.config:
        raise Refusal(f"{kind} is more than a text decoder; extend its language model alone.")
    children = ((m, name, child) for m in model.modules() for name, child in m.named_children())
    slots = tuple(
        Slot(*found) for found in children if any(n.endswith("inv_freq") for n, _ in found[2].named_buffers(recurse=False))
    )
    if not slots:
        raise Refusal(
            f"{kind} has no rotary module (one with a buffer named inv_freq), so it has no frequencies to change. Models with "
            "ALiBi, a learned table or T5's buckets take 'alibi_interpolation', 'learned_interpolation' or 't5_interpolation'."
        )
    return slots


def _table(model: PreTrainedModel, slots: tuple[Slot, ...], spectra: Mapping[str | None, Spectrum]) -> tuple[Pairing, int]:
    """How the rotary modules lay out their tables, and how wide these are."""
    fits = {_layout_of(slot.module, kind, spectrum) for slot in slots for kind, spectrum in spectra.items()}
    if len(fits) > 1:
        raise Refusal(f"{type(model).__name__} has {len(slots)} rotary modules that differ; one could not stand in for all.")
    return fits.pop()


def _layout_of(module: nn.Module, kind: str | None, spectrum: Spectrum) -> tuple[Pairing, int]:
    buffer = next(module.buffers())
    pos = torch.arange(POSITIONS, device=buffer.device)[None]
    table = module(buffer.new_zeros(1, POSITIONS, 1, dtype=torch.float32), pos, *([] if kind is None else [kind]))
    rule = spectrum.settled(POSITIONS)
    turn = torch.from_numpy(rule.inv_freq(spectrum.size)).to(pos.device)
    cos = (pos.double()[..., None] * turn).cos() * rule.mscale
    for pairing in Pairing:
        if _alike(table, pairing.spread(cos), buffer.dtype):
            return pairing, spectrum.size
    raise Refusal(
        f"{type(module).__name__} does not give cosines and sines of the frequencies that its configuration declares "
        f"({spectrum.kind}), one per channel, so another module cannot stand in for it."
    )


def _alike(table: Any, cos: Tensor, kind: torch.dtype) -> bool:
    """`kind` is what the module keeps its frequencies in: rounded to it, they move angles by a share of themselves."""
    shaped = isinstance(table, tuple) and len(table) == 2 and all(isinstance(t, Tensor) and t.shape == cos.shape for t in table)
    return shaped and torch.allclose(table[0].double(), cos, rtol=0, atol=max(1e-4, POSITIONS * torch.finfo(kind).eps))


@contextmanager
def _recording(found: list[Call]) -> Iterator[None]:
    def look(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Places, **rest: Any):
        found.append(Call(module, query, key, value, mask.window, rest))
        return value.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[3]), None

    AttentionInterface.register(SURVEY, look)
    AttentionMaskInterface.register(SURVEY, checked_places)
    try:
        yield
    finally:
        AttentionInterface.register(SURVEY, _closed)


def _closed(*_: Any, **__: Any) -> None:
    raise Refusal(f"The {SURVEY!r} attention only looks at models while extend() prepares them.")


def _layer(model: PreTrainedModel, call: Call, own: set[str | None], channels: int) -> Layer:
    _require_known(call)
    kind, size = type(call.module).__name__, call.query.shape[-1]
    hit = call.query.isnan().flatten(0, 2).any(0)
    if bool(hit.any()) and not torch.equal(hit, torch.arange(size, device=hit.device) < channels):
        raise Refusal(f"{kind} does not turn the first {channels} channels of its heads, but {int(hit.sum())} others.")
    layer_type = None if own == {None} else model.config.layer_types[call.module.layer_idx]
    return Layer(call.module, layer_type, bool(hit.any()), call.query.shape[1], call.key.shape[1], size, call.window)


def _require_known(call: Call) -> None:
    """Refuses attentions that ours would not equal."""
    kind, keys, values = type(call.module).__name__, call.key.shape[-1], call.value.shape[-1]
    if call.window == 0:
        raise Refusal(f"{kind} has a sliding window of 0 tokens, which shows nothing. Set sliding_window in its configuration.")
    for name, what in FOREIGN.items():
        if call.rest.get(name) is not None:
            raise Refusal(f"{kind} {what} ({name}={call.rest[name]}), which our attention does not.")
    if keys != values:
        raise Refusal(
            f"{kind} has keys of {keys} and values of {values} channels (latent attention): its keys are turned in part and "
            "stored elsewhere, which extend() cannot reproduce."
        )
