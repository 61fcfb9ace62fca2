"""How long a text an extended model is meant for: factor, trained length and target, given or missing."""

from collections.abc import Mapping, Sequence
from typing import Any

from lengthen.core import Method, UsageError, parse
from lengthen.core.errors import require_count
from lengthen.core.frequency import require_factor

from .lengths import Lengths, resolve_lengths

Tokens = int | Sequence[int] | None
"""A length to reach; one for each row of the batches to come; or none."""


def target(request: Any, tokens: Tokens, trained: int, maximum: int) -> Lengths:
    """What is decided, with the sentence that says why.

    A factor that is given is never recomputed; a missing one is the target over the trained length; a missing target is the
    factor times the trained length. Where both are missing, methods that rescale take their own factor, and others leave
    the model meant for the `maximum` that it was meant for. Of several rows the longest counts.

    Raises UsageError for a target below the trained length, for a factor below 1, or for one too small for the target.
    """
    longest = _longest(tokens)
    given = [options["factor"] for method, options in parts(request) if "factor" in options and takes_factor(method)]
    for factor in given:
        require_factor("extend", factor)
    if longest is not None:
        _require_reachable(longest, trained, max(given, default=None))
        return resolve_lengths(max(given, default=None), trained, longest)
    if given:
        return resolve_lengths(max(given), trained)
    own = [_default(method) for method, _ in parts(request) if takes_factor(method)]
    if own:
        chosen = resolve_lengths(max(own), trained)
        return Lengths(
            chosen.factor,
            trained,
            chosen.maximum,
            f"Neither a factor nor a target is given; by the method's own factor, {chosen.why}",
        )
    why = f"Neither a factor nor a target is given, so the model stays meant for {maximum} tokens; it was trained on {trained}."
    return Lengths(maximum / trained, trained, maximum, why)


def takes_factor(method: Method) -> bool:
    """Whether its 'factor' is the new length over the trained one; remapping methods count tokens per position by theirs."""
    return not method.modifies and any(option.name == "factor" for option in method.options)


def parts(request: Any) -> list[tuple[Method, dict[str, Any]]]:
    """The methods named by a request, with their options."""
    specs = request.values() if isinstance(request, Mapping) else [request]
    return [part for spec in specs if isinstance(spec, str) for part in parse(spec)]


def _longest(tokens: Tokens) -> int | None:
    rows = list(tokens) if isinstance(tokens, Sequence) else [] if tokens is None else [tokens]
    if isinstance(tokens, Sequence) and not rows:
        raise UsageError("The 'tokens' of extend are one length, or one for each row; got an empty list.")
    for row in rows:
        require_count("extend", "tokens", row, "tokens")
    return max(rows, default=None)


def _require_reachable(tokens: int, trained: int, factor: float | None) -> None:
    if tokens < trained:
        raise UsageError(f"This checkpoint was trained on {trained} tokens, got a target of {tokens}. Give at least {trained}.")
    if factor is not None and tokens > round(trained * factor):
        raise UsageError(
            f"{tokens} tokens are {tokens / trained:g} times the {trained} trained ones, more than the factor {factor:g}. "
            "Give one of the two, or a factor that reaches."
        )


def _default(method: Method) -> float:
    return next(option.default for option in method.options if option.name == "factor")
