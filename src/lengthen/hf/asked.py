"""A method, a factor and a length, as they were asked for, as one request and one length."""

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedConfig

from lengthen.core import Method, UsageError, parse
from lengthen.core.frequency import require_factor

from .own import own_spectra
from .request import Request
from .target import Tokens, takes_factor


def asked_for(
    config: PreTrainedConfig,
    request: Request | None,
    method: Request | None,
    factor: float | None,
    tokens: Tokens,
    original: int | None = None,
) -> tuple[Request, Tokens]:
    """What `extend` goes by: the request with the factor in it, and the length to reach.

    A factor goes into the specs of methods that have one. Methods without reach that many trained lengths instead, where no
    length is given. Raises UsageError where the method is missing or given twice, and for two factors that differ.
    """
    if (request is None) == (method is None):
        raise UsageError(
            "Name one method to extend by, as in extend(model, 'yarn:factor=4') or extend(model, method='yarn', factor=4)."
        )
    request = request if request is not None else method
    if factor is None:
        return request, tokens
    require_factor("extend", factor)
    made, took = with_factor(request, factor)
    if not took and tokens is None:
        first = next(iter(request), None) if isinstance(request, Mapping) else None
        tokens = round(factor * (original if original is not None else trained_tokens(config, first)))
    return made, tokens


def trained_tokens(config: PreTrainedConfig, layer_type: str | None = None) -> int:
    """The trained length of the layers of that type, or of the first type that has frequencies where there is none such."""
    spectra = own_spectra(config)
    return spectra[layer_type if layer_type in spectra else next(iter(spectra))].lengths.original


def with_factor(request: Request, factor: float) -> tuple[Request, bool]:
    """The request with the factor in every spec that has a place for one, and whether any has."""
    if isinstance(request, Mapping):
        made = {kind: with_factor(part, factor) if part is not None else (None, False) for kind, part in request.items()}
        return {kind: part for kind, (part, _) in made.items()}, any(took for _, took in made.values())
    if not isinstance(request, str):
        raise UsageError(
            f"A factor belongs to a method named by a spec, and this one is a {type(request).__name__}. Build it with it."
        )
    parts = parse(request)
    takers = [method for method, _ in parts if takes_factor(method)]
    return "+".join(_written(method, _with(method, options, factor)) for method, options in parts), bool(takers)


def _with(method: Method, options: dict[str, Any], factor: float) -> dict[str, Any]:
    if not takes_factor(method):
        return options
    if options.get("factor", factor) != factor:
        raise UsageError(
            f"The factor is {options['factor']} in the spec of {method.name} and {factor} beside it. Give it once."
        )
    return options | {"factor": factor}


def _written(method: Method, options: Mapping[str, Any]) -> str:
    """The spec of a method: 'yarn:factor=4'."""
    settings = ",".join(f"{name}={value!r}" for name, value in options.items())
    return f"{method.name}:{settings}" if settings else method.name
