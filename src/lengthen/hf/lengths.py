"""Factor, trained length and maximum length: what is decided where some are missing or contradict each other."""

from dataclasses import dataclass

from lengthen.core import UsageError
from lengthen.core.errors import require_count
from lengthen.core.frequency import require_factor


@dataclass(frozen=True)
class Lengths:
    """What was decided, and the sentence that says why."""

    factor: float
    """The new length over the trained one; what frequencies are computed from."""
    original: int
    """The trained length, in tokens."""
    maximum: int
    """Tokens that the model is meant for."""
    why: str

    def __str__(self) -> str:
        return self.why


def resolve_lengths(factor: float | None = None, original: int | None = None, maximum: int | None = None) -> Lengths:
    """Decides all three from those that are given; None is missing.

    A factor that is given is never recomputed (transformers, vLLM and SGLang agree on that); a missing one is the maximum
    over the trained length; of two lengths, the missing one follows from the factor, and a single length is the trained one.
    Raises UsageError for a factor below 1, for a trained length above the maximum, and where no length is given.
    """
    _require_possible(factor, original, maximum)
    if original is None and maximum is None:
        known = "Neither a factor nor a length is given" if factor is None else f"A factor of {factor:g} alone names no length"
        raise UsageError(f"{known}. Give the trained length, original_max_position_embeddings.")
    if factor is None:
        return _without_factor(original, maximum)
    return _one_length(factor, original, maximum) if original is None or maximum is None else _all(factor, original, maximum)


def _require_possible(factor: float | None, original: int | None, maximum: int | None) -> None:
    if factor is not None:
        require_factor("a rescaled model", factor)
    for name, value in (("original_max_position_embeddings", original), ("max_position_embeddings", maximum)):
        if value is not None:
            require_count("the model", name, value, "tokens")
    if original is not None and maximum is not None and original > maximum:
        raise UsageError(
            f"The trained length of {original} tokens is above the maximum of {maximum}; one of them is wrong. "
            "max_position_embeddings is at least original_max_position_embeddings."
        )


def _without_factor(original: int | None, maximum: int | None) -> Lengths:
    if original is None or maximum is None:
        length = original if original is not None else maximum
        return Lengths(1.0, length, length, f"One length of {length} tokens and no factor: nothing was extended.")
    factor = maximum / original
    return Lengths(
        factor, original, maximum, f"No factor is given, so it is the maximum over the trained length: {maximum} / {original} = {factor:g}."
    )  # fmt: skip


def _one_length(factor: float, original: int | None, maximum: int | None) -> Lengths:
    if original is not None:
        reach = round(factor * original)
        return Lengths(factor, original, reach, f"{factor:g} times the {original} trained tokens reach {reach}.")
    reach = round(factor * maximum)
    return Lengths(
        factor,
        maximum,
        reach,
        f"No trained length is given, so the maximum of {maximum} tokens is taken for it, as transformers does, and {factor:g} times "
        f"that reach {reach}. If {maximum} is the length after scaling, the trained one is {round(maximum / factor)}: say so.",
    )


def _all(factor: float, original: int, maximum: int) -> Lengths:
    reach = round(factor * original)
    if reach == maximum:
        return Lengths(
            factor, original, maximum, f"{factor:g} times the {original} trained tokens are the maximum of {maximum}."
        )
    if maximum == original:
        return Lengths(
            factor,
            original,
            reach,
            f"{factor:g} times the {original} trained tokens reach {reach}; the maximum was left at the trained length and is not "
            f"taken for a limit. If {original} is the length after scaling, the trained one is {round(original / factor)}: say so.",
        )
    return Lengths(
        factor,
        original,
        maximum,
        f"{factor:g} times the {original} trained tokens are {reach}, and the maximum is {maximum}: they contradict each other. "
        f"Frequencies take the factor {factor:g} as it is given, not {maximum / original:g}; the maximum stays {maximum}.",
    )
