"""Checks on far positions: shifts, the declared maximum, and what lies beyond it."""

import torch
from torch import Tensor

from .check import NotApplicable
from .decoding import LONGEST
from .register import model_check
from .subject import Subject, difference, rounding
from .verdict import Measured, worst

REFUSALS = (IndexError, ValueError, AssertionError, RuntimeError, NotImplementedError)
"""What models raise beyond what they can serve."""


def shifted(subject: Subject, ids: Tensor, by: int) -> Tensor:
    """Logits with every position moved by the same."""
    mask = None if "mask" in subject.facts.lacks else torch.ones_like(ids)
    return subject.logits(ids, mask, torch.arange(by, by + ids.shape[1]).expand_as(ids))


def angle_error(position: int, logits: Tensor) -> float:
    """What float32 angles at that position may move logits of that size by."""
    return 8 * position * 2.0**-24 * max(1.0, logits.abs().max().item())


@model_check(
    "shift",
    "positions",
    meaning="The logits depend on where in the text a passage stands, so what was learned near the start is lost far on.",
    cause="Rotations or biases use absolute positions somewhere, or positions are rounded, clamped or wrapped.",
)
def shift(subject: Subject) -> Measured:
    """Moving all positions by the same changes nothing: within the declared range, across its end, and far beyond."""
    subject.requires("causal", "positions")
    if subject.facts.absolute:
        raise NotApplicable("positions are embedded, so they count by themselves")
    ids = subject.ids(24)
    still, found = shifted(subject.fresh(), ids, 0), []
    for by in _shifts(subject, ids.shape[1]):
        gap = difference(shifted(subject.fresh(), ids, by), still)
        found.append(Measured(gap, rounding(subject, still) + angle_error(by, still), f"moved by {by:,} tokens"))
    return worst(found)


def _shifts(subject: Subject, tokens: int) -> tuple[int, ...]:
    """Where a rule switches with the length only as far as it is the same."""
    adaptive = subject.facts.adaptive
    if adaptive:
        return tuple(by for by in (1, min(adaptive) - tokens) if by > 0)
    length = subject.facts.length
    across = () if length is None else (length - tokens // 2, length + 1)
    return tuple(sorted({1, 100, *(by for by in across if by > 0), 10_000}))


@model_check(
    "beyond_declared",
    "positions",
    meaning="Beyond its declared length the model gives nan, or reads late tokens as early ones without saying so.",
    cause="An index taken modulo the size of a table or clamped to its end; an overflow.",
)
def beyond_declared(subject: Subject) -> Measured:
    """A text longer than the declared maximum is read with finite logits, or refused; late positions are never early ones."""
    length = subject.facts.length
    if length is None or length > LONGEST:
        raise NotApplicable("it declares no length" if length is None else f"it declares {length} tokens; check a tiny model")
    try:
        logits = subject.fresh().logits(subject.ids(length + 9))
    except REFUSALS as e:
        return Measured(0.0, 0.0, f"refused: {type(e).__name__}")
    if not bool(torch.isfinite(logits).all()):
        return Measured(1.0, 0.0, f"logits of {length + 9} tokens are not finite")
    return _wraps(subject, length)


def _wraps(subject: Subject, length: int) -> Measured:
    """Whether a single token beyond the declared length is embedded as one within it; it attends to itself alone."""
    if not subject.facts.absolute or "positions" in subject.facts.lacks:
        return Measured(0.0, 0.0)
    ids = subject.ids(1, rows=1)
    early = torch.cat([shifted(subject, ids, at) for at in range(length)])
    late = [shifted(subject, ids, at) for at in (length, length + 5)]
    alike = sum(bool(((early - x).abs().amax((1, 2)) == 0).any()) for x in late)
    return Measured(float(alike), 0.0, f"{alike} of 2 positions beyond {length} are read as earlier ones" if alike else "")
