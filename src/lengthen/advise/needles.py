"""The retrieval probe: sentences hidden in the text, and questions whose right answer is one of the values that all stand in it.

Every alternative occurs in the text once, so neither novelty nor frequency gives the answer away, and one token decides:
the values begin with tokens of their own. Chance is 1 / alternatives.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

NAMES = ("Alice", "Bruno", "Clara", "David", "Emma", "Frank", "Grace", "Henry", "Irene", "James", "Karen", "Louis")
VALUES = (
    "anchor",
    "basket",
    "candle",
    "dragon",
    "engine",
    "feather",
    "garden",
    "hammer",
    "island",
    "jacket",
    "kettle",
    "lemon",
)
MOST = len(NAMES)


@dataclass(frozen=True)
class Needles:
    """Sentences and questions of one document, as tokens."""

    sentences: tuple[tuple[int, ...], ...]
    questions: tuple[tuple[int, ...], ...]
    """Each ends right before the token that decides."""
    choices: tuple[int, ...]
    """The deciding token of every sentence's value."""

    @property
    def room(self) -> int:
        """Tokens that the longest question takes."""
        return max(map(len, self.questions), default=0)

    def __len__(self) -> int:
        return len(self.sentences)


def needles(tokenizer: Any, count: int, seed: int) -> Needles:
    """`count` sentences, names and values paired at random. Empty where this tokenizer's values do not differ in one token."""
    draw = np.random.default_rng(seed)
    names = [NAMES[n] for n in draw.permutation(MOST)[:count]]
    values = [VALUES[n] for n in draw.permutation(MOST)[:count]]
    encode = lambda text: tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    sentences = tuple(encode(f" The password of {name} is {value}.") for name, value in zip(names, values, strict=True))
    asked = [[encode(f"\n\nThe password of {name} is {value}") for value in values] for name in names]
    heads = [_common(versions) for versions in asked]
    choices = {tuple(v[head] if len(v) > head else -1 for v in versions) for versions, head in zip(asked, heads, strict=True)}
    if len(choices) != 1 or len(set(next(iter(choices)))) < count or -1 in next(iter(choices)):
        return Needles((), (), ())
    questions = tuple(versions[0][:head] for versions, head in zip(asked, heads, strict=True))
    return Needles(sentences, questions, next(iter(choices)))


def _common(versions: Sequence[Sequence[int]]) -> int:
    """Tokens that all versions begin with."""
    return next((n for n, column in enumerate(zip(*versions, strict=False)) if len(set(column)) > 1), min(map(len, versions)))
