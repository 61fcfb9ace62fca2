"""From a corpus's name to tokens for training and for reading far."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from lengthen.core.errors import UsageError, require_count

from .batches import TokenDocument
from .corpus import load_corpus
from .documents import Corpus
from .split import longest_holdable, split
from .tokenizer import Tokenizer, load_tokenizer

CHARS_PER_TOKEN = (6, 4, 3, 2, 1)
"""Guesses for tokenizers whose tokens are longer than a byte, the safest first: a document of so many characters per
wanted token is surely long enough."""


@dataclass(frozen=True)
class Prepared:
    """Tokens of both sides of a split, whole documents."""

    train: tuple[TokenDocument, ...]
    held: tuple[TokenDocument, ...]
    tokenizer: Tokenizer
    provenance: dict
    """Origin, split, tokenizer, counts and digests of the tokens, fit for JSON."""


def prepare(
    data: str = "demo", tokenizer: str = "bytes", held_out: float = 0.1, seed: int = 0, min_held_tokens: int = 0
) -> Prepared:
    """Loads, splits by document and tokenizes; a trained tokenizer sees the training part only.

    Held-out documents stay whole. Some of them have at least `min_held_tokens` tokens; refuses, with the numbers, where
    the corpus cannot give that.
    """
    require_count("prepare", "min_held_tokens", min_held_tokens, "tokens", least=0)
    corpus = load_corpus(data)
    train, held = split(corpus, held_out, seed, _least_chars(corpus, tokenizer, min_held_tokens))
    made = load_tokenizer(tokenizer, train)
    sides = [_tokenize(part, made) for part in (train, held)]
    longest = max(len(d.ids) for d in sides[1])
    if longest < min_held_tokens:
        raise UsageError(
            f"The corpus {data!r} is too small for this reading length: its longest held-out document has {longest} tokens of "
            f"{made.name!r}, and {min_held_tokens} are needed. Give longer documents or read less far."
        )
    provenance = {
        "data": data,
        "corpus": corpus.provenance,
        "split": {"held_out": held_out, "seed": seed, "min_held_tokens": min_held_tokens},
        "tokenizer": made.name,
        "vocab": made.vocab,
        "train": _describe(sides[0]),
        "held": {**_describe(sides[1]), "longest": longest, "names": [f"{d.source}/{d.name}" for d in sides[1]]},
    }
    return Prepared(*sides, made, provenance)


def _least_chars(corpus: Corpus, tokenizer: str, tokens: int) -> int:
    """Characters that surely give so many tokens: as many for bytes, a guess for longer tokens."""
    if tokenizer == "bytes":
        return tokens
    longest = longest_holdable(corpus)
    return tokens * next((ratio for ratio in CHARS_PER_TOKEN if ratio * tokens <= longest), 1)


def _tokenize(part: Corpus, tokenizer: Tokenizer) -> tuple[TokenDocument, ...]:
    return tuple(TokenDocument(d.name, tokenizer.encode(d.text), d.source) for d in part.documents)


def _describe(documents: Sequence[TokenDocument]) -> dict:
    digest = hashlib.sha256()
    for document in documents:
        digest.update(document.ids.astype("<i8").tobytes())
    return {"documents": len(documents), "tokens": sum(len(d.ids) for d in documents), "sha256": digest.hexdigest()}
