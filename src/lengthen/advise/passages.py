"""Passages of exactly the target length, cut out of long texts, with needles at known distances from their end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from lengthen.core import UsageError
from lengthen.data import Corpus, Document

from .forward import DECODED
from .needles import MOST, Needles, needles

SHARE = 1 / 8
"""Of a passage that needles may take at most; those inside the old window may take twice this share of it."""
LEAST_CHARS = 1
"""Characters that a token stands for at least, taken over a long text; shorter texts are not tokenized."""
REACH = 64
"""Tokens within which the end of a sentence is looked for, at most."""


@dataclass(frozen=True)
class Passage:
    """What is read in one forward, and what is asked afterwards."""

    name: str
    ids: np.ndarray
    """int64 [N]; N and what comes behind, the longest question or the tokens that are timed, make the target."""
    scored: np.ndarray
    """bool [N - 1]: which targets, the tokens from the second on, are text and no needle."""
    needles: Needles
    distances: tuple[int, ...]
    """Tokens from each needle's end to the end of the passage."""

    @property
    def digest(self) -> str:
        """Of all that is read and asked."""
        content = [self.ids.astype("<i8").tobytes(), repr((self.needles, self.distances)).encode()]
        return sha256(b"".join(content)).hexdigest()[:16]


def passages(corpus: Corpus, tokenizer: Any, trained: int, target: int, count: int) -> list[Passage]:
    """`count` passages, or as many as there are: one of each document, the longest first, then their next stretches.

    Raises UsageError where no document is long enough, with both numbers.
    """
    found = []
    for name, ids in _stretches(corpus, tokenizer, target, count):
        found.append(_passage(name, ids, tokenizer, trained, target, seed=len(found)))
        if len(found) == count:
            break
    return found


def _stretches(corpus: Corpus, tokenizer: Any, target: int, count: int) -> Iterator[tuple[str, np.ndarray]]:
    """(name, int64 [target]), none of them overlapping."""
    ordered = sorted(corpus.documents, key=lambda d: (-len(d.text), d.name))
    long = [d for d in ordered if len(d.text) >= LEAST_CHARS * target]
    texts: list[tuple[str, np.ndarray]] = []
    longest = 0
    for document in long:
        ids = encode(tokenizer, document)
        longest = max(longest, len(ids))
        if len(ids) >= target:
            texts.append((document.name, ids))
            yield document.name, ids[:target]
    if not texts:
        have = f"{longest} tokens" if long else f"{len(ordered[0].text)} characters"
        raise UsageError(
            f"No document of {corpus.name!r} is long enough: its longest has {have}, and the target is {target} tokens. "
            "Give longer texts with --data, or a lower target."
        )
    for turn in range(1, max(len(ids) for _, ids in texts) // target):
        for name, ids in texts:
            if len(ids) >= (turn + 1) * target:
                yield f"{name}, from token {turn * target}", ids[turn * target : (turn + 1) * target]


def encode(tokenizer: Any, document: Document) -> np.ndarray:
    """int64 [T], without special tokens; `verbose` would warn of the length that is meant here."""
    return np.asarray(tokenizer(document.text, add_special_tokens=False, verbose=False)["input_ids"], dtype=np.int64)


def starts(tokenizer: Any) -> list[int]:
    """The token that this tokenizer puts before every text, if any."""
    ids = tokenizer("a")["input_ids"]
    return ids[:1] if len(ids) and ids[0] == tokenizer.bos_token_id else []


def _passage(name: str, text: np.ndarray, tokenizer: Any, trained: int, target: int, seed: int) -> Passage:
    asked = _asked(tokenizer, trained, target, seed)
    first = starts(tokenizer)
    body = target - max(asked.room, DECODED) - len(first) - sum(map(len, asked.sentences))
    ids, is_text, ends = [*first], [False] * len(first), []
    begin = 0
    for place, sentence in zip(_places(asked, trained, body), asked.sentences, strict=True):
        stop = _sentence_end(tokenizer, text, place, _reach(trained))
        ids += [*text[begin:stop], *sentence]
        is_text += [True] * (stop - begin) + [False] * len(sentence)
        begin = stop
        ends.append(len(ids))
    ids += [*text[begin:body]]
    is_text += [True] * (body - begin)
    return Passage(
        name,
        np.asarray(ids, dtype=np.int64),
        np.asarray(is_text[1:], dtype=bool),
        asked,
        tuple(len(ids) - end for end in ends),
    )


def _asked(tokenizer: Any, trained: int, target: int, seed: int) -> Needles:
    """As many needles as fit, an even number of them; none where the lengths leave no room."""
    whole = needles(tokenizer, MOST, seed)
    size = max(map(len, whole.sentences), default=1) + whole.room
    count = min(MOST, int(SHARE * min(target, 4 * trained) / size) // 2 * 2)
    if count < 2 or len(whole) == 0:
        return Needles((), (), ())
    return whole if count == MOST else needles(tokenizer, count, seed)


def _places(asked: Needles, trained: int, body: int) -> Sequence[int]:
    """Where needles go in a text of `body` tokens, rising: half of them farther than the trained length from its end.

    The others are so near that the needles behind them do not push them out of the old window.
    """
    pairs, reach = len(asked) // 2, _reach(trained)
    border = body - trained
    inside = border + sum(map(len, asked.sentences)) + reach + asked.room
    share = (np.arange(pairs) + 0.5) / max(1, pairs)
    return np.concatenate([share * (border - reach), inside + share * (body - reach - inside)]).astype(int).tolist()


def _reach(trained: int) -> int:
    """Tokens within which the end of a sentence is looked for."""
    return min(REACH, trained // 16)


def _sentence_end(tokenizer: Any, text: np.ndarray, place: int, reach: int) -> int:
    """The first place from there on, within `reach` tokens, behind a full stop or a line's end; else the place itself."""
    ends = (".", "!", "?", "\n")
    found = (n for n in range(max(1, place), place + reach) if tokenizer.decode([int(text[n - 1])]).rstrip(" ").endswith(ends))
    return next(found, place)
