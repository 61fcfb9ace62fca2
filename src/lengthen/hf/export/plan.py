"""planned(): what an export would write, decided and proven before anything is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig

from lengthen.core import Refusal, UsageError
from lengthen.core.errors import unknown

from ..extend import Extension
from ..probe import allowed, answers
from ..request import parameters
from .native import Parameters, rope_parameters
from .reader import proven, reader, with_entries
from .static import Static, obstacle

TABLE = "table"
"""The route of models whose learned table of positions was stretched."""
FORMS = ("vanilla", "lengthen")
"""A folder for transformers alone, and one that only `load` opens as what it is."""


@dataclass(frozen=True)
class Plan:
    """What is to be written, proven."""

    form: str
    """'vanilla' or 'lengthen'; see FORMS."""
    config: PreTrainedConfig
    parameters: Mapping[str | None, Parameters]
    """By layer type, the rope_parameters that were chosen; empty where transformers cannot say it."""
    gap: float | None
    """How far transformers' own rotary module is from ours, in deviations of the logits of a probe; None: nothing turns, or
    it is not vanilla."""
    why: str | None
    """Why it is not vanilla; None where it is."""

    @property
    def rope_types(self) -> dict[str | None, str]:
        """By layer type, the name of transformers that computes the frequencies."""
        return {kind: entries["rope_type"] for kind, entries in self.parameters.items()}

    def __str__(self) -> str:
        if self.form == "lengthen":
            return f"the checkpoint, and what to change in it, for lengthen.load; transformers alone cannot run it, because {self.why}."
        if not self.parameters:
            return "a plain checkpoint for transformers, whose table of positions is longer."
        names = ", ".join(name if kind is None else f"{name} in {kind}" for kind, name in self.rope_types.items())
        told = (
            f"a plain checkpoint for transformers ({names}); with transformers' own rotary module the logits differ by "
            f"{self.gap:.1e} of their deviation."
        )
        # transformers and vLLM take this entry of 'yarn' as it is; SGLang never reads it, and vLLM not that of 'longrope'.
        apart = any("attention_factor" in entries for entries in self.parameters.values())
        return (
            f"{told} Servers find its multiplier elsewhere: give them the flags of server_flags (--servers)." if apart else told
        )


def planned(extension: Extension, form: str | None = None) -> Plan:
    """What `export` would write, proven; raises as it does, and writes nothing."""
    _require_known(extension, form)
    why = not_vanilla(extension)
    if why is not None and form == "vanilla":
        raise Refusal(
            f"A configuration of transformers cannot express this: {why}. form='lengthen' saves it for lengthen.load."
        )
    if why is not None or form == "lengthen":
        return _own_form(extension, why if why is not None else "it was asked for in this form")
    if extension.route == TABLE:
        return Plan("vanilla", with_entries(extension.model.config), {}, None, None)
    config, chosen = vanilla_config(extension, static_spectra(extension))
    return Plan("vanilla", config, chosen, _proof(extension, config), None)


def _own_form(extension: Extension, why: str) -> Plan:
    kind = type(extension.model).__name__
    if extension.route == TABLE:
        raise Refusal(f"The table of {kind} is longer in its weights, which is plain already. Leave form='lengthen' out.")
    if extension.model.config.is_encoder_decoder:
        raise Refusal(f"{kind} has an encoder, and lengthen.load opens decoders only; nor can a configuration say it: {why}.")
    return Plan("lengthen", checkpoint_config(extension), {}, None, why)


def not_vanilla(extension: Extension) -> str | None:
    """Why plain transformers cannot run the extended model; None where it can."""
    if extension.route == TABLE:
        return None
    for kind, scheme in extension.schemes.items():
        why = obstacle(scheme)
        if why is not None:
            return why if kind is None else f"in {kind} layers, {why}"
    if extension.route != "rotary":
        return (
            f"it runs on the route {extension.route!r}, which was asked for, and transformers turns keys before it caches them"
        )
    return None


def static_spectra(extension: Extension) -> dict[str | None, Static]:
    """By layer type, how queries and keys turn at every length; of an extension that is `not_vanilla` for no reason."""
    config = checkpoint_config(extension)
    return {kind: _static(extension, config, kind) for kind in extension.schemes}


def _static(extension: Extension, config: PreTrainedConfig, kind: str | None) -> Static:
    rotation = extension.schemes[kind].rotation
    layer = next(a for a in extension.installed.seen.layers if a.turned and a.layer_type == kind)
    base, lengths = parameters(config, kind)["rope_theta"], extension.lengths
    return Static(rotation.rule, rotation.size, layer.size, rotation.interleaved, base, lengths.original, lengths.maximum)


def vanilla_config(
    extension: Extension, statics: Mapping[str | None, Static]
) -> tuple[PreTrainedConfig, dict[str | None, Parameters]]:
    """The configuration under which transformers computes the spectra, and their rope_parameters by layer type."""
    config = readable_config(extension)
    chosen = {
        kind: rope_parameters(static, parameters(config, kind), reader(extension.installed, config, kind, static.tokens))
        for kind, static in statics.items()
    }
    whole = chosen[None] if None in chosen else dict(config.rope_parameters) | chosen
    entries = {"rope_parameters": whole, "max_position_embeddings": extension.tokens}
    if getattr(config, "original_max_position_embeddings", None) is not None:
        entries["original_max_position_embeddings"] = extension.lengths.original
    return with_entries(config, **entries), chosen


def readable_config(extension: Extension) -> PreTrainedConfig:
    """The checkpoint's configuration with the size of its heads spelled out, by which transformers scales frequencies.

    Mixtral's leaves it None, and transformers 5.24 then computes no scaled frequencies for it at all.
    """
    config = checkpoint_config(extension)
    if config.to_dict().get("head_dim", 0) is None:
        config.head_dim = extension.installed.seen.layers[0].size
    return config


def checkpoint_config(extension: Extension) -> PreTrainedConfig:
    """The configuration as it was before the model was extended."""
    return with_entries(extension.model.config, **extension.installed.before)


def _proof(extension: Extension, config: PreTrainedConfig) -> float:
    gap = proven(extension.installed, config)
    most = allowed(extension.model, answers(extension.model))
    if gap > most:
        raise Refusal(
            f"Under transformers' own rotary module the logits are {gap:.1e} of their deviation away from the extended model's, and "
            f"{most:.0e} is allowed in {extension.model.dtype}. Nothing was written; form='lengthen' saves it for lengthen.load."
        )
    return gap


def _require_known(extension: Any, form: str | None) -> None:
    if not isinstance(extension, Extension):
        raise UsageError(
            f"export() takes what extend() returned, got {type(extension).__name__}. A plain model has save_pretrained()."
        )
    if extension.installed is None:
        raise UsageError("This extension was restored, so its model is the checkpoint again. Extend it once more to export it.")
    if form is not None and form not in FORMS:
        raise unknown("form of export", form, FORMS)
