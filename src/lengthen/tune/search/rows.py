"""What candidates are scored on: long texts, or the needles hidden in them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lengthen.core import UsageError
from lengthen.core.errors import require_count
from lengthen.data import IGNORED, TokenDocument

from ..batches import long_enough

Encode = Callable[[str], np.ndarray]
"""Text -> int64 [T], without special tokens."""
PLACES = ("Oslo", "Lima", "Cairo", "Quito", "Hanoi", "Accra", "Delhi", "Turin", "Osaka", "Perth", "Basel", "Tunis")
"""What needles are about."""


@dataclass(frozen=True)
class Row:
    """One text to score on."""

    ids: Tensor
    """int64 [1, T]."""
    targets: Tensor
    """int64 [1, T]; -100 is not scored."""


def text_rows(documents: Sequence[TokenDocument], length: int, count: int) -> list[Row]:
    """The first `length` tokens of `count` documents, every next token scored (LongRoPE)."""
    require_count("search", "rows", count, "texts")
    chosen = long_enough(documents, length)[:count]
    cut = lambda d, a: torch.from_numpy(np.asarray(d.ids[a : a + length], dtype=np.int64))[None]
    return [Row(cut(d, 0), cut(d, 1)) for d in chosen]


def needle_rows(
    documents: Sequence[TokenDocument], length: int, count: int, encode: Encode, needles: int = 4, seed: int = 0
) -> list[Row]:
    """`count` texts of `length` tokens that hide `needles` sentences and end by asking for them; only answers are scored.

    A needle gives a five-figure number to a place, at a random depth of the text; the questions come in another order. Perplexity
    over all tokens is decided by what stands near, and is blind to lost distance (LongRoPE2, arXiv:2502.20082, section 3.3).
    """
    require_count("search", "rows", count, "texts")
    if not 1 <= needles <= len(PLACES):
        raise UsageError(f"A text hides 1 to {len(PLACES)} needles, got {needles}.")
    chosen = long_enough(documents, length)
    rng = np.random.Generator(np.random.PCG64(seed))
    return [_needle_row(chosen[n % len(chosen)].ids, length, encode, needles, rng) for n in range(count)]


def _needle_row(text: np.ndarray, length: int, encode: Encode, needles: int, rng: np.random.Generator) -> Row:
    facts = [(PLACES[n], f" {rng.integers(10_000, 100_000)}.") for n in rng.permutation(len(PLACES))[:needles]]
    hidden = [encode(f"\nThe number of {place} is{number}\n") for place, number in facts]
    asked = [(encode(f"\nThe number of {facts[n][0]} is"), encode(facts[n][1])) for n in rng.permutation(needles)]
    room = length + 1 - sum(map(len, hidden)) - sum(len(q) + len(a) for q, a in asked)
    if room < needles:
        raise UsageError(
            f"{needles} needles and their questions leave {room} of {length} tokens for the text that hides them; give longer rows or "
            "fewer needles."
        )
    cuts = np.sort(rng.integers(0, room + 1, needles))
    parts = [p for chunk, fact in zip(np.split(text[:room], cuts), [*hidden, []], strict=True) for p in (chunk, fact)]
    ids = [np.asarray(p, dtype=np.int64) for p in (*parts, *(p for pair in asked for p in pair))]
    whole = np.concatenate(ids)
    scored = np.zeros(len(whole), dtype=bool)
    end = len(whole)
    for question, answer in reversed(asked):
        scored[end - len(answer) : end] = True
        end -= len(question) + len(answer)
    targets = np.where(scored[1:], whole[1:], IGNORED)
    return Row(torch.from_numpy(whole[:-1].copy())[None], torch.from_numpy(targets)[None])
