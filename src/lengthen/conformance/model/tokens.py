"""A check of the tokenizer at the joins of windows: nothing is added, nothing is lost, and it fits the model."""

from typing import Any

from .check import NotApplicable
from .register import model_check
from .subject import Subject
from .verdict import Measured

TEXT = (
    "The lighthouse keeper wrote 1,204 lines by hand; nobody asked why. \u201cNa\u00efve?\u201d he said, \u2014 and the sea "
    "answered in its own time.\n\nOn the second day the wind turned north-east, and the boats stayed in the harbour. "
)
"""Words, numbers, quotes, accents, a paragraph."""


@model_check(
    "tokens_at_joins",
    "tokenizer",
    meaning="Texts that are cut into windows, or put together from pieces, gain or lose tokens at the joins.",
    cause="Special tokens are added to every piece, a leading space is added or dropped, or the vocabulary is another model's.",
)
def tokens_at_joins(subject: Subject) -> Measured:
    """Special tokens come only when asked for, BOS once; ids cut anywhere decode to the text; all ids are in the vocabulary.

    Counts the faults.
    """
    tokenizer = subject.tokenizer
    if tokenizer is None:
        raise NotApplicable("no tokenizer was given")
    faults = list(_faults(tokenizer, subject.facts.vocab))
    return Measured(float(len(faults)), 0.0, "; ".join(faults))


def _faults(tokenizer: Any, vocab: int):
    plain = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    added = tokenizer(TEXT)["input_ids"]
    special = set(tokenizer.all_special_ids)
    if special & set(plain):
        yield "special tokens are added although add_special_tokens=False"
    if tokenizer.bos_token_id is not None and _leading(added, tokenizer.bos_token_id) != added.count(tokenizer.bos_token_id):
        yield "BOS stands elsewhere than first"
    if tokenizer.bos_token_id is not None and added.count(tokenizer.bos_token_id) > 1:
        yield f"BOS is added {added.count(tokenizer.bos_token_id)} times"
    if tokenizer.decode(plain).strip() != TEXT.strip():
        yield "the ids of a text do not decode to it"
    if max(added) >= vocab:
        yield f"id {max(added)} is outside the vocabulary of the model, {vocab}"
    pieces = [tokenizer(piece, add_special_tokens=False)["input_ids"] for piece in (TEXT, TEXT)]
    if tokenizer.decode([i for piece in pieces for i in piece]).strip() != (TEXT + TEXT).strip():
        yield "two pieces encoded apart do not decode to their text: something is added or lost at the join"


def _leading(ids: list[int], token: int) -> int:
    """How many of the first ids are that token."""
    return next((n for n, i in enumerate(ids) if i != token), len(ids))
