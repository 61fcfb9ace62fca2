"""Whole models: which subject carries them. Classes are named, and their libraries never imported for it."""

from collections.abc import Callable

from torch import nn

from lengthen.core.errors import UsageError

from ..model.subject import Subject


def _transformers(model: nn.Module, name: str | None) -> Subject:
    from ..model.hugging_face import EncoderDecoder, HuggingFace
    from .extended import Extended, is_extended

    if is_extended(model):
        return Extended(model, name)
    return (EncoderDecoder if model.config.is_encoder_decoder else HuggingFace)(model, name)


def _x_transformers(model: nn.Module, name: str | None) -> Subject:
    from .x_transformers_model import XTransformer

    return XTransformer(model, name)


def _own(model: nn.Module, name: str | None) -> Subject:
    from .own_decoder import OwnDecoder

    return OwnDecoder(model, name)


CARRIERS: dict[str, Callable[[nn.Module, str | None], Subject]] = {
    "transformers.modeling_utils.PreTrainedModel": _transformers,
    "x_transformers.x_transformers.TransformerWrapper": _x_transformers,
    "lengthen.models.decoder.Decoder": _own,
}
"""Qualified name of a class, or of a parent class -> the function from a model and its name to its subject."""


def carrier(model: object) -> Callable[[nn.Module, str | None], Subject] | None:
    """The function that makes the subject of a model; None for what is no model that is known here."""
    parents = (f"{c.__module__}.{c.__qualname__}" for c in type(model).__mro__)
    return next((CARRIERS[p] for p in parents if p in CARRIERS), None)


def wrap(model: nn.Module, name: str | None = None) -> Subject:
    """The subject of a model. Raises UsageError for one of an unknown class."""
    found = carrier(model)
    if found is None:
        raise UsageError(
            f"{type(model).__name__} is no model of transformers, of x-transformers (a TransformerWrapper) or of lengthen. "
            "Derive a Subject from lengthen.conformance.model.subject.Subject that says how it is called."
        )
    return found(model, name)
