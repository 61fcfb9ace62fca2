"""A check that the layers turn queries and keys, or leave them alone, as the config says."""

from typing import Any

from .check import NotApplicable
from .register import model_check
from .rope_modules import config_of, rope_modules
from .subject import Subject
from .verdict import Measured


@model_check(
    "layers_as_declared",
    "settings",
    meaning="Layers without positions were trained to have none (or the other way round): long texts are read by other rules.",
    cause="A list of layers is shifted by one, read with the opposite meaning, or lost when the config is saved.",
)
def layers_as_declared(subject: Subject) -> Measured:
    """The layers that turn queries and keys are those that the config declares; counts those that differ."""
    config = config_of(subject)
    rope_modules(subject)
    wanted, found = declared_layers(config), observed(subject.fresh())
    wrong = [n for n, turns in enumerate(found) if turns != (n in wanted)]
    said = ", ".join(f"layer {n} {'turns' if found[n] else 'does not turn'}" for n in wrong)
    return Measured(float(len(wrong)), 0.0, said if wrong else f"{sum(found)} of {len(found)} layers turn")


def declared_layers(config: Any) -> set[int]:
    """Numbers of the layers that are to turn. Raises NotApplicable for a family whose config is not understood."""
    from lengthen.core import Refusal
    from lengthen.hf.spectrum import declared

    try:
        return {n for spectrum in declared(config).values() for n in spectrum.layers}
    except Refusal as e:
        raise NotApplicable(str(e)) from e


def observed(subject: Subject) -> list[bool]:
    """Which layers turn, seen by running the model with cosines and sines that are not numbers."""
    from lengthen.core import Refusal
    from lengthen.hf.survey import survey

    try:
        return [layer.turned for layer in survey(subject.model).layers]
    except Refusal as e:
        raise NotApplicable(f"its attention cannot be looked into: {e}") from e
