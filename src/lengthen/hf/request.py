"""What was asked for, as one scheme per spectrum of the checkpoint, and how long a text it is meant for."""

from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedConfig

from lengthen.core import Method, Refusal, Scheme, Shape, UsageError, compose, parse
from lengthen.core.errors import require_count, unknown
from lengthen.methods.rope import Rotary

from .own import kind_of, rules
from .survey import Survey

Request = str | Scheme | Mapping[str, str | Scheme | None]
"""A spec, a scheme, or one of these per layer type (None: as it is)."""


def own_schemes(survey: Survey, tokens: int | None) -> dict[str | None, Scheme]:
    """By layer type, how the checkpoint itself turns queries and keys."""
    own = rules(survey.slots[0].module, tokens)
    rotary = lambda rule: Scheme(rotation=Rotary(rule, survey.channels, survey.pairing.interleaved)).eval()
    return {kind: rotary(own[kind]) for kind in survey.types}


def wanted_schemes(survey: Survey, request: Request, tokens: int | None) -> dict[str | None, Scheme]:
    """By layer type, the scheme that was asked for. Raises UsageError where it does not fit the checkpoint."""
    own = own_schemes(survey, tokens)
    asked = request if isinstance(request, Mapping) else dict.fromkeys(own, request)
    if len(own) > 1 and not isinstance(request, Mapping):
        kinds = " and ".join(map(repr, own))
        raise UsageError(
            f"This checkpoint turns its layers by {len(own)} spectra, {kinds}. Say which are to change, as in "
            f"{{{next(iter(own))!r}: {request if isinstance(request, str) else '...'!r}}}; the others stay as they are."
        )
    for kind in asked:
        if kind not in own:
            raise unknown("layer type with a spectrum of its own", str(kind), [str(k) for k in own])
    return own | {kind: _scheme(survey, kind, r, own[kind], tokens) for kind, r in asked.items() if r is not None}


def trained_length(config: PreTrainedConfig, layer_type: str | None = None) -> int:
    """Tokens that the checkpoint was trained on before anybody extended it."""
    rope = parameters(config, layer_type)
    given = rope.get("original_max_position_embeddings", getattr(config, "original_max_position_embeddings", None))
    return given if given is not None else config.max_position_embeddings


def parameters(config: PreTrainedConfig, layer_type: str | None) -> Mapping[str, Any]:
    """transformers' rope_parameters of one layer type."""
    return config.rope_parameters if layer_type is None else config.rope_parameters[layer_type]


def shape(survey: Survey, layer_type: str | None) -> Shape:
    """What a method may want to know of the model."""
    layer = next(a for a in survey.layers if a.layer_type == layer_type and a.turned)
    config = survey.model.config
    return Shape(layer.heads, layer.groups, layer.size, config.hidden_size, trained_length(config, layer_type))


def _scheme(survey: Survey, kind: str | None, request: str | Scheme, own: Scheme, tokens: int | None) -> Scheme:
    made = request if isinstance(request, Scheme) else _from_spec(survey, kind, request, own, tokens)
    made = made.to(survey.model.device).eval()
    _require_possible(made, survey.model.config.hidden_size)
    rotation = made.rotation
    if rotation is not None and rotation.size > 2 and rotation.interleaved != survey.pairing.interleaved:
        raise UsageError(
            f"{type(rotation).__name__} does not pair channels as this checkpoint does, which is {survey.pairing.value}. "
            f"Build it with interleaved={survey.pairing.interleaved}."
        )
    return made


def _require_possible(scheme: Scheme, width: int) -> None:
    """Refuses stages that a model of transformers never calls."""
    if scheme.embedding is not None:
        raise Refusal(f"{type(scheme.embedding).__name__} changes embeddings, and the model's layers never call it.")
    if scheme.positions is not None and scheme.positions.reads_tokens:
        raise Refusal(f"{type(scheme.positions).__name__} reads token ids, which attention in transformers does not see.")
    for term in scheme.terms:
        if term.stream(next(iter(term.parameters()), torch.zeros(1)).new_zeros(1, 1, width), None) is not None:
            raise Refusal(f"{type(term).__name__} keeps a stream of its own, which transformers' caches have no place for.")


def _from_spec(survey: Survey, kind: str | None, spec: str, own: Scheme, tokens: int | None) -> Scheme:
    sizes = shape(survey, kind)
    parts = [m.build(sizes, **_filled(survey, kind, m, options, sizes, tokens)) for m, options in parse(spec)]
    if all(m.modifies for m, _ in parse(spec)):
        return compose(own, *parts)
    if any(part.rotation is not None for part in parts):
        _require_unscaled(survey, kind, spec)
    return compose(*parts) if len(parts) > 1 else parts[0]


def _filled(
    survey: Survey, kind: str | None, method: Method, options: Mapping[str, Any], sizes: Shape, tokens: int | None
) -> dict[str, Any]:
    """The options of a method, those of its rotation taken from the checkpoint where they are not given."""
    known = {option.name for option in method.options}
    rope = parameters(survey.model.config, kind)
    facts = {
        "base": rope["rope_theta"],
        "interleaved": survey.pairing.interleaved,
        "fraction": survey.channels / sizes.head_size,
    }
    if tokens is not None and {"base", "factor"} <= known:
        facts["factor"] = max(1.0, tokens / sizes.train_length)
    return {name: value for name, value in facts.items() if name in known} | dict(options)


def _require_unscaled(survey: Survey, kind: str | None, spec: str) -> None:
    already = kind_of(survey.slots[0].module, kind)
    if already not in ("default", "proportional"):
        raise UsageError(
            f"The frequencies of this checkpoint are scaled already ({already}), and {spec!r} brings frequencies of its own "
            "that know nothing of it. Pass a Scheme if they are meant to replace them."
        )


def target_length(config: PreTrainedConfig, request: Request, tokens: int | None) -> int:
    """Tokens to read in the end: `tokens`, else the trained length times the 'factor' of the spec, else what it is now.

    Raises UsageError for a length below the trained one, and for a factor below 1 or too small for `tokens`.
    """
    trained = trained_length(config, None if "rope_type" in config.rope_parameters else next(iter(config.rope_parameters)))
    factors = [options["factor"] for m, options in _parts(request) if "factor" in options and not m.modifies]
    for factor in factors:
        if factor < 1:
            raise UsageError(f"A factor extends a checkpoint, so it is at least 1, got {factor}.")
    if tokens is None:
        return round(trained * max(factors)) if factors else config.max_position_embeddings
    require_count("extend", "tokens", tokens, "tokens")
    if tokens < trained:
        raise UsageError(f"This checkpoint was trained on {trained} tokens, got a target of {tokens}. Give at least {trained}.")
    if factors and tokens > trained * max(factors):
        raise UsageError(
            f"{tokens} tokens are {tokens / trained:g} times the {trained} trained ones, more than the factor {max(factors):g}. "
            "Give one of the two, or a factor that reaches."
        )
    return tokens


def _parts(request: Request) -> list[tuple[Method, dict[str, Any]]]:
    specs = request.values() if isinstance(request, Mapping) else [request]
    return [part for spec in specs if isinstance(spec, str) for part in parse(spec)]
