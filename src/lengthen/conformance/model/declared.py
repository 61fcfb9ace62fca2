"""The rotary frequencies that run, against those that a config of transformers declares by the published formulas."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from lengthen.core import FrequencyRule, Refusal

from ..check import NotApplicable


@dataclass(frozen=True)
class Compared:
    """One spectrum: what runs for short texts, against what is declared for them."""

    label: str
    frequency_error: float
    """Relative, the worst of the pairs."""
    multiplier_error: float
    """Relative, of what multiplies q . k."""


def compare(label: str, inv_freq: np.ndarray, scaling: float, rule: FrequencyRule) -> Compared:
    """Running frequencies [R/2] and the scaling of cosines and sines, against a rule."""
    exact = rule.inv_freq(2 * len(inv_freq))
    relative = np.abs(inv_freq - exact) / np.where(exact == 0, 1, np.abs(exact))
    return Compared(label, float(relative.max()), abs(scaling**2 / rule.mscale**2 - 1))


def compared(model: nn.Module, config: Any) -> list[Compared]:
    """Every spectrum of every rotary module. Raises NotApplicable where the family or its scaling is not known here."""
    from lengthen.hf.own import spectra
    from lengthen.hf.spectrum import declared

    running = [(name, kind, *run) for name, m in model.named_modules() for kind, run in spectra(m).items()]
    if not running:
        raise NotApplicable("it has no rotary module with a buffer of inverse frequencies")
    try:
        rules = declared(config)
    except Refusal as e:
        raise NotApplicable(str(e)) from e
    label = lambda name, kind: name if kind is None else f"{name}, {kind}"
    known = [(n, k, f, s) for n, k, f, s in running if k in rules]
    return [compare(label(name, kind), freq, scaling, rules[kind].settled()) for name, kind, freq, scaling in known]
