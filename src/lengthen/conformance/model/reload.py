"""Checks on saving, loading and settings: what is set is what runs."""

import json
import tempfile
from pathlib import Path
from typing import Any

from .check import NotApplicable
from .declared import Compared
from .register import model_check
from .subject import Subject, difference, rounding
from .verdict import Measured, worst


@model_check(
    "reload",
    "settings",
    meaning="The model that is loaded is another one than was saved, without an error.",
    cause="A base, factor or original length is not in the config or is dropped, or a buffer is made from a default.",
)
def reload(subject: Subject) -> Measured:
    """Saved to a folder and loaded again the model gives the same logits, also beyond the lengths at which a rule switches."""
    other = _reloaded(subject)
    found = []
    for tokens in dict.fromkeys(subject.within(n) for n in (30, 90)):
        ids = subject.ids(tokens)
        first = subject.fresh().logits(ids)
        found.append(Measured(difference(other.logits(ids), first), rounding(subject, first), f"{tokens} tokens"))
    return worst(found)


@model_check(
    "reload_settings",
    "settings",
    meaning="A setting is lost when the model is saved, so the next person loads a model of another length or base.",
    cause="The setting lives on a module and not in the config, or the config drops keys that it does not know.",
)
def reload_settings(subject: Subject) -> Measured:
    """Saved to a folder and loaded again the config holds the same settings; counts those that changed."""
    other = _reloaded(subject)
    before, after = (_settings(json.loads(s.configuration())) if s.configuration() else {} for s in (subject, other))
    if not before:
        raise NotApplicable("it has no config")
    changed = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
    return Measured(float(len(changed)), 0.0, f"changed: {', '.join(changed)}" if changed else "")


def _reloaded(subject: Subject) -> Subject:
    subject.requires("reload")
    with tempfile.TemporaryDirectory() as folder:
        return subject.fresh().reloaded(Path(folder))


NOTED = ("transformers_version", "_name_or_path", "architectures", "dtype", "torch_dtype")
"""Keys that a library writes when it saves."""


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    """A config without the notes of a library, at any depth."""
    return {k: _settings(v) if isinstance(v, dict) else v for k, v in config.items() if k not in NOTED}


@model_check(
    "frequencies",
    "settings",
    meaning="The rotary frequencies that run are not those that the config declares: the model was trained, or extended, otherwise.",
    cause="A key of the rope parameters is ignored, lost between layer types, or computed by another rule.",
)
def frequencies(subject: Subject) -> Measured:
    """The rotary frequencies that run are those of the config, by the published formula, to one part in 10,000."""
    return worst(Measured(f.frequency_error, 1e-4, f.label) for f in _spectra(subject))


@model_check(
    "logit_multiplier",
    "settings",
    meaning="Attention is sharper or flatter than declared: the temperature of YaRN or LongRoPE is missing, or applied twice.",
    cause="mscale, mscale_all_dim and attention_factor confused, or a factor applied to scores that are already products of two.",
)
def logit_multiplier(subject: Subject) -> Measured:
    """The multiplier of the logits that the rotary tables carry is that of the config, by the published formula."""
    return worst(Measured(f.multiplier_error, 1e-4, f.label) for f in _spectra(subject))


def _spectra(subject: Subject) -> list[Compared]:
    found = subject.spectra()
    if not found:
        raise NotApplicable("no spectrum that runs is declared")
    return found
