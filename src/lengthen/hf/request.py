"""What was asked for, as one scheme per spectrum of the checkpoint."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import PreTrainedConfig

from lengthen.core import Adaptive, FrequencyRule, Method, Refusal, Scheme, Shape, UsageError, compose, parse
from lengthen.core.errors import unknown
from lengthen.methods.rope import Rotary, rotary_scheme

from .own import own_spectra, settled
from .rows import by_row
from .survey import Survey
from .target import Tokens

One = str | Scheme | FrequencyRule | Adaptive
"""A spec; a scheme; or frequencies, settled for the target where they depend on the length."""
Request = One | Mapping[str, One | None]
"""One for all layers, or one per layer type (None: as it is)."""


def own_schemes(survey: Survey, tokens: int | None) -> dict[str | None, Scheme]:
    """By layer type, how the checkpoint itself turns queries and keys."""
    return {kind: _turned_by(survey, settled(survey.spectra[kind], tokens)) for kind in survey.types}


def wanted_schemes(survey: Survey, request: Request, tokens: Tokens) -> dict[str | None, Scheme]:
    """By layer type, the scheme that was asked for. Raises UsageError where it does not fit the checkpoint."""
    kinds = survey.types
    asked = request if isinstance(request, Mapping) else dict.fromkeys(kinds, request)
    if len(kinds) > 1 and not isinstance(request, Mapping):
        names = " and ".join(map(repr, kinds))
        raise UsageError(
            f"This checkpoint turns its layers by {len(kinds)} spectra, {names}. Say which are to change, as in "
            f"{{{kinds[0]!r}: {request if isinstance(request, str) else '...'!r}}}; the others stay as they are."
        )
    for kind in asked:
        if kind not in kinds:
            raise unknown("layer type with a spectrum of its own", str(kind), [str(k) for k in kinds])
    return {kind: _for_rows(survey, kind, asked.get(kind), tokens) for kind in kinds}


def trained_length(config: PreTrainedConfig, layer_type: str | None = None) -> int:
    """Tokens that the checkpoint was trained on before anybody extended it."""
    return own_spectra(config)[layer_type].lengths.original


def parameters(config: PreTrainedConfig, layer_type: str | None) -> Mapping[str, Any]:
    """transformers' rope_parameters of one layer type."""
    return config.rope_parameters if layer_type is None else config.rope_parameters[layer_type]


def shape(survey: Survey, layer_type: str | None) -> Shape:
    """What a method may want to know of the model."""
    layer = next(a for a in survey.layers if a.layer_type == layer_type and a.turned)
    trained = survey.spectra[layer_type].lengths.original
    return Shape(layer.heads, layer.groups, layer.size, survey.model.config.hidden_size, trained)


def _for_rows(survey: Survey, kind: str | None, request: One | None, tokens: Tokens) -> Scheme:
    """One scheme for all rows, or one that turns each row by its own frequencies."""
    if not isinstance(tokens, Sequence):
        return _scheme(survey, kind, request, tokens)
    if isinstance(request, str) and any("factor" in options for _, options in parse(request)):
        raise UsageError(f"Rows of their own lengths take factors from these, and {request!r} holds one. Leave it out.")
    return by_row([_scheme(survey, kind, request, row) for row in tokens]).eval()


def _scheme(survey: Survey, kind: str | None, request: One | None, tokens: int | None) -> Scheme:
    made = _built(survey, kind, request, tokens).to(survey.model.device).eval()
    _require_possible(made, survey.model.config.hidden_size)
    rotation = made.rotation
    if rotation is not None and rotation.size > 2 and rotation.interleaved != survey.pairing.interleaved:
        raise UsageError(
            f"{type(rotation).__name__} does not pair channels as this checkpoint does, which is {survey.pairing.value}. "
            f"Build it with interleaved={survey.pairing.interleaved}."
        )
    return made


def _built(survey: Survey, kind: str | None, request: One | None, tokens: int | None) -> Scheme:
    if request is None:
        return _turned_by(survey, settled(survey.spectra[kind], tokens))
    if isinstance(request, str):
        return _from_spec(survey, kind, request, tokens)
    if isinstance(request, Adaptive):
        if tokens is None:
            name = type(request).__name__
            raise UsageError(f"{name} depends on the length of the text. Settle it: extend(..., tokens=N), or {name}.at(N).")
        request = request.at(tokens)
    if isinstance(request, FrequencyRule):
        size = shape(survey, kind).head_size
        return rotary_scheme(request, size, survey.channels / size, survey.pairing.interleaved)
    if not isinstance(request, Scheme):
        raise UsageError(
            f"extend() takes a spec, a Scheme, a rule of frequencies, or a mapping from layer types to these, got a "
            f"{type(request).__name__}."
        )
    return request


def _turned_by(survey: Survey, rule: FrequencyRule) -> Scheme:
    """The rotation alone: what the rule says of the whole head is in the model's own scale already."""
    return Scheme(rotation=Rotary(rule, survey.channels, survey.pairing.interleaved)).eval()


def _require_possible(scheme: Scheme, width: int) -> None:
    """Refuses stages that a model of transformers never calls."""
    if scheme.embedding is not None:
        raise Refusal(f"{type(scheme.embedding).__name__} changes embeddings, and the model's layers never call it.")
    if scheme.positions is not None and scheme.positions.reads_tokens:
        raise Refusal(f"{type(scheme.positions).__name__} reads token ids, which attention in transformers does not see.")
    for term in scheme.terms:
        if term.stream(next(iter(term.parameters()), torch.zeros(1)).new_zeros(1, 1, width), None) is not None:
            raise Refusal(f"{type(term).__name__} keeps a stream of its own, which transformers' caches have no place for.")


def _from_spec(survey: Survey, kind: str | None, spec: str, tokens: int | None) -> Scheme:
    sizes = shape(survey, kind)
    made = [m.build(sizes, **_filled(survey, kind, m, options, sizes, tokens)) for m, options in parse(spec)]
    if all(m.modifies for m, _ in parse(spec)):
        return compose(_turned_by(survey, settled(survey.spectra[kind], tokens)), *made)
    if any(part.rotation is not None for part in made):
        _require_unscaled(survey, kind, spec)
    return compose(*made) if len(made) > 1 else made[0]


def _filled(
    survey: Survey, kind: str | None, method: Method, options: Mapping[str, Any], sizes: Shape, tokens: int | None
) -> dict[str, Any]:
    """The options of a method, those of its rotation taken from the checkpoint where they are not given."""
    known = {option.name for option in method.options}
    facts = {
        "base": survey.spectra[kind].base,
        "interleaved": survey.pairing.interleaved,
        "fraction": survey.channels / sizes.head_size,
    }
    if tokens is not None and {"base", "factor"} <= known:
        facts["factor"] = max(1.0, tokens / sizes.train_length)
    return {name: value for name, value in facts.items() if name in known} | dict(options)


def _require_unscaled(survey: Survey, kind: str | None, spec: str) -> None:
    own = survey.spectra[kind]
    if own.kind not in ("default", "proportional"):
        raise UsageError(
            f"The frequencies of this checkpoint are scaled already ({own.kind}), from {own.lengths.original} trained "
            f"tokens to {own.lengths.maximum}, and {spec!r} brings frequencies of its own that know nothing of it. Extend the "
            "checkpoint from before the scaling; or take a method that keeps frequencies, such as 'self_extend' or 'dual_chunk'; "
            "or pass a rule or a Scheme, which replaces them."
        )
