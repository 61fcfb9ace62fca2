"""Checks that a model remembers nothing between requests, and repeats itself."""

import torch

from .decoding import LONGEST, switches
from .register import model_check
from .subject import Subject, difference, rounding
from .verdict import Measured, worst


@model_check(
    "repeatable",
    "state",
    meaning="The same input gives other results the second time: nothing measured with it can be repeated.",
    cause="Dropout or noise in evaluation mode, or a buffer that the forward changes.",
)
def repeatable(subject: Subject) -> Measured:
    """The same forward twice gives the same bits."""
    model, ids = subject.fresh(), subject.ids(subject.within(24))
    return Measured(difference(model.logits(ids), model.logits(ids)), 0.0)


@model_check(
    "earlier_requests",
    "state",
    meaning="What a request gets depends on which requests were served before it.",
    cause="Frequencies, tables, masks or caches that grow with a long request are kept for the next one.",
)
def earlier_requests(subject: Subject) -> Measured:
    """A request gives the same logits on a fresh model and after longer, shorter, generated and padded requests."""
    lengths = sorted({subject.within(n) for n in (3, 90, *(n + 40 for n in switches(subject)), *_declared(subject))})
    own = sorted({subject.within(n) for n in (30, *(n + 5 for n in switches(subject)))})
    return worst(_after(subject, request, before) for request in own for before in lengths)


def _after(subject: Subject, request: int, before: int) -> Measured:
    """A request of that many tokens on a fresh model, and on one that served another before."""
    ids, model = subject.ids(request), subject.fresh()
    alone = subject.fresh().logits(ids)
    _serve(model, before)
    return Measured(difference(model.logits(ids), alone), rounding(subject, alone), f"{request} tokens after {before}")


def _declared(subject: Subject) -> tuple[int, ...]:
    length = subject.facts.length
    return (length + 9,) if length is not None and length <= LONGEST else ()


def _serve(model: Subject, tokens: int) -> None:
    """One forward, and where there is a cache a few decoding steps."""
    ids = model.ids(tokens, rows=1, salt=5)
    model.logits(ids)
    if "cache" not in model.facts.lacks and "causal" not in model.facts.lacks:
        model.decode(ids, (max(1, tokens - 2), 1))


@model_check(
    "unseeded",
    "state",
    meaning="Calling the model changes the random numbers of the program around it.",
    cause="Random draws inside an evaluation forward.",
)
def unseeded(subject: Subject) -> Measured:
    """A forward in evaluation mode draws no random numbers."""
    before = torch.get_rng_state()
    subject.fresh().logits(subject.ids(subject.within(12)))
    moved = not torch.equal(before, torch.get_rng_state())
    torch.set_rng_state(before)
    return Measured(float(moved), 0.0, "the state of the generator moved" if moved else "")
