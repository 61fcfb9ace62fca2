"""What a checkpoint's configuration says of its rotary frequencies, in our own arithmetic.

Nothing here asks transformers to compute: what `declared` returns is what the model's own tables can be compared with.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lengthen.core import Adaptive, FrequencyRule, Refusal, UsageError
from lengthen.core.errors import unknown

from .families import FAMILIES, Facts, Family
from .kinds import KINDS, SHARED, Kind, Said
from .lengths import Lengths, resolve_lengths


@dataclass(frozen=True)
class Spectrum:
    """How some layers of a model turn queries and keys, as its configuration declares it."""

    kind: str
    """'default', 'linear', 'dynamic', 'yarn', 'longrope', 'llama3' or 'proportional'."""
    rule: FrequencyRule | Adaptive
    base: float
    """Of the frequencies before any scaling."""
    size: int
    """R, the channels that are turned."""
    head_size: int
    interleaved: bool
    """Whether channels (2i, 2i+1) turn together, and not (i, i + R/2)."""
    layers: tuple[int, ...]
    """Those that turn, from 0."""
    lengths: Lengths
    remark: str | None = None
    """What else the model does with positions."""

    def settled(self, tokens: int | None = None) -> FrequencyRule:
        """The rule for a text of at most `tokens`; None: of the trained length or less."""
        if isinstance(self.rule, Adaptive):
            return self.rule.at(tokens if tokens is not None else self.rule.original)
        return self.rule

    def inv_freq(self, tokens: int | None = None) -> np.ndarray:
        """float64 [R/2], radians per token."""
        return self.settled(tokens).inv_freq(self.size)

    def logit_multiplier(self, tokens: int | None = None) -> float:
        """How many times as large q . k of the turned channels is as without scales."""
        return self.settled(tokens).logit_multiplier


def declared(config: Any, family: Family | None = None) -> dict[str | None, Spectrum]:
    """By layer type (None: one for all), the spectrum that a configuration of transformers 5.x declares.

    config: a configuration object, or the mapping in a config.json, legacy names included. It is not changed.
    family: what the configuration does not say; None looks the model type up.

    Raises Refusal for a model type or a kind of scaling that is not known here, UsageError for entries that are missing,
    unknown or contradict each other. Layers without positions belong to no spectrum.
    """
    facts, theta = _facts(config)
    family = family if family is not None else _family(facts)
    given = _by_layer_type(facts)
    spectra = {kind: _spectrum(facts, family, kind, values, theta) for kind, values in given.items()}
    return {kind: spectrum for kind, spectrum in spectra.items() if spectrum.layers}


def _facts(config: Any) -> tuple[Facts, float | None]:
    """The entries of the text model, and the base that its class assumes where none is given."""
    if isinstance(config, Mapping):
        return config.get("text_config", config), None
    text = config.get_text_config()
    theta = getattr(type(text), "default_theta", None)
    return text.to_dict(), theta if isinstance(theta, int | float) else None


def _family(facts: Facts) -> Family:
    kind = facts.get("model_type")
    if kind not in FAMILIES:
        raise Refusal(
            f"How a model of type {kind!r} turns queries and keys is not known here, so its configuration cannot be read. "
            f"Known: {', '.join(sorted(FAMILIES))}."
        )
    if facts.get("alibi"):
        raise Refusal(f"This {kind} has ALiBi and no rotary frequencies.")
    return FAMILIES[kind]


def _by_layer_type(facts: Facts) -> dict[str | None, Mapping[str, Any]]:
    """The rotary entries, flat as {None: entries} or nested by layer type. A type with None has no positions."""
    given = next((facts[name] for name in ("rope_parameters", "rope_scaling") if facts.get(name)), {})
    nested = [name for name, value in given.items() if isinstance(value, Mapping)]
    if not nested:
        return {None: given}
    flat = sorted(name for name, value in given.items() if name not in nested and value is not None)
    if flat:
        raise UsageError(
            f"rope_parameters are given by layer type ({', '.join(nested)}), and {', '.join(flat)} beside them belongs to none. "
            "Move it into each."
        )
    return {name: given[name] for name in nested}


def _spectrum(facts: Facts, family: Family, layer_type: str | None, given: Mapping[str, Any], theta: float | None) -> Spectrum:
    name, kind = _kind(given)
    _require_known(name, kind, given, family)
    sizes = [facts[entry] for entry in family.head_size if facts.get(entry)]
    head = sum(sizes) if sizes else facts["hidden_size"] // facts["num_attention_heads"]
    # Latent attention turns a part of its own, which transformers calls the head.
    turnable = facts["qk_rope_head_dim"] if "qk_rope_head_dim" in family.head_size else head
    share = _first(given.get("partial_rotary_factor"), facts.get("partial_rotary_factor"), facts.get("rotary_pct"), 1.0)
    lengths = _lengths(facts, kind, given, nested=layer_type is not None)
    size = turnable if kind.whole_head else int(turnable * share)
    said = Said(given, _base(facts, given, theta), size, share, lengths, family.softmax_scale)
    layers, interleaved = _layers(facts, family, layer_type), family.interleaved(facts)
    spectrum = Spectrum(name, kind.rule(said), said.base, size, head, interleaved, layers, lengths, family.remark)
    spectrum.inv_freq()
    return spectrum


def _kind(given: Mapping[str, Any]) -> tuple[str, Kind]:
    name = _first(given.get("rope_type"), given.get("type"), "default")
    name = {"su": "longrope"}.get(name, name)
    if name not in KINDS:
        raise Refusal(f"The rotary scaling {name!r} is not known here. Known: {', '.join(KINDS)}.")
    return name, KINDS[name]


def _require_known(name: str, kind: Kind, given: Mapping[str, Any], family: Family) -> None:
    """Refuses entries that nothing would read: transformers warns of them and goes on without."""
    known = {*SHARED, *kind.entries, *family.extra}
    for entry in sorted(given.keys() - known):
        if given[entry] is not None:
            raise unknown(f"entry of rope_parameters for rope_type {name!r}", entry, known)
    missing = [entry for entry in kind.required if given.get(entry) is None]
    if missing:
        raise UsageError(f"rope_parameters of rope_type {name!r} lack {' and '.join(missing)}.")


def _base(facts: Facts, given: Mapping[str, Any], theta: float | None) -> float:
    # An entry that is there and None was lost: transformers loses it where somebody sets rope_scaling.
    lost = "rope_theta" in given and given["rope_theta"] is None
    base = _first(given.get("rope_theta"), facts.get("rope_theta"), None if lost else theta)
    if base is None:
        raise UsageError(
            "rope_parameters have no rope_theta, the base of the frequencies. Set it, as in 'rope_theta': 10000.0."
        )
    return float(base)


def _lengths(facts: Facts, kind: Kind, given: Mapping[str, Any], nested: bool) -> Lengths:
    """Beside rope_parameters, the trained length may stand in the configuration itself (Phi-3), where they are not nested."""
    if not kind.stretches:
        return resolve_lengths(maximum=facts["max_position_embeddings"])
    inner = given.get("original_max_position_embeddings")
    outer = None if nested or not kind.has_original else facts.get("original_max_position_embeddings")
    if inner is not None and outer is not None and inner != outer:
        raise UsageError(f"The trained length is given twice: {inner} in rope_parameters, and {outer} beside them. Keep one.")
    return resolve_lengths(given.get("factor"), _first(inner, outer), facts["max_position_embeddings"])


def _layers(facts: Facts, family: Family, layer_type: str | None) -> tuple[int, ...]:
    turned = family.turned(facts)
    kinds = facts["layer_types"] if layer_type is not None else [None] * len(turned)
    return tuple(n for n, (turns, kind) in enumerate(zip(turned, kinds, strict=True)) if turns and kind == layer_type)


def _first(*values: Any) -> Any:
    """The first that is given; None is not."""
    return next((value for value in values if value is not None), None)
