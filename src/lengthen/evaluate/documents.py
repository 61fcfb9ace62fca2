"""Which held-out documents are read: long enough for every length, whole documents, the same ones for every reading."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lengthen.core.errors import UsageError, require_count


@dataclass(frozen=True)
class Selection:
    """The documents that are read, and what became of the others."""

    chosen: tuple[int, ...]
    """Indices into the documents given."""
    too_short: int
    """Left out because they are shorter than the longest length."""
    spare: int
    """Long enough, but more than were asked for."""


def check_lengths(lengths: Sequence[int]) -> list[int]:
    """The lengths as given. Raises UsageError unless they are whole numbers from 2 up that rise."""
    if len(lengths) == 0:
        raise UsageError("No length was given. Lengths are tokens per window, as in 128 256 512.")
    for n in lengths:
        if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 2:
            raise UsageError(f"A length must be a whole number of tokens, at least 2, got {n!r} in {_list(lengths)}.")
    for a, b in pairwise(lengths):
        if a == b:
            raise UsageError(f"The length {a} is given twice in {_list(lengths)}. Give each length once.")
        if a > b:
            raise UsageError(f"Lengths must rise, got {b} after {a}. Give them as {_list(sorted(set(lengths)))}.")
    return [int(n) for n in lengths]


def check_tokens(documents: Sequence[np.ndarray], vocab: int) -> list[np.ndarray]:
    """The documents as int64 [tokens]. Raises UsageError for tokens outside the vocabulary."""
    checked = []
    for n, ids in enumerate(documents):
        ids = np.asarray(ids)
        if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
            raise UsageError(f"Document {n} must be whole numbers [tokens], got {ids.dtype} of shape {list(ids.shape)}.")
        if ids.size and (ids.min() < 0 or ids.max() >= vocab):
            raise UsageError(
                f"Document {n} holds tokens {ids.min()} to {ids.max()}, the model's vocabulary is 0 to {vocab - 1}. "
                "Use the tokenizer that the model was trained with."
            )
        checked.append(ids.astype(np.int64))
    return checked


def select(documents: Sequence[np.ndarray], longest: int, most: int) -> Selection:
    """Up to `most` documents that can fill a window of `longest` tokens and still score the last, spread evenly over the
    order given. Raises UsageError where there is none."""
    require_count("evaluate", "most_documents", most, "documents")
    sizes = [len(d) for d in documents]
    enough = [n for n, size in enumerate(sizes) if size > longest]
    if not enough:
        there = f"the longest of {len(sizes)} has {max(sizes)} tokens" if sizes else "there is no document at all"
        raise UsageError(
            f"The length {longest} is longer than any held-out document: {there}, and {longest + 1} are needed to read "
            f"{longest} and guess the next. Give shorter lengths or longer documents."
        )
    taken = min(most, len(enough))
    chosen = tuple(enough[k * len(enough) // taken] for k in range(taken))
    return Selection(chosen, len(sizes) - len(enough), len(enough) - taken)


def _list(lengths: Sequence[int]) -> str:
    return " ".join(str(n) for n in lengths)
