"""What one method makes of one passage: losses by position, answers, what a token costs, what the cache takes."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from lengthen.core import LengthenError

from .forward import DECODED, Prefilled, cache_bytes, filled, fork, losses, prefill, proceed
from .passages import Passage

BINS = 64
"""Bins of position per trained length."""


@dataclass(frozen=True)
class Answer:
    """One question about a needle."""

    distance: int
    """Tokens from the needle to the end of the passage."""
    nats: float
    """-log p of the right value among all that were hidden."""
    right: bool
    """Whether it is the most probable of them."""


@dataclass(frozen=True)
class Reading:
    """One passage under one method."""

    nats: tuple[float, ...]
    """Sum of losses by bin of position; `BINS` bins make the trained length."""
    tokens: tuple[int, ...]
    """Tokens scored in each bin."""
    answers: tuple[Answer, ...]
    cache_bytes: int
    """Keys and values of one row of the target length, in a cache that forgets what the method never shows again."""
    decode_s: float
    """Median seconds of a token behind the passage."""
    stock_s: float | None
    """The same in the model as it is, directly afterwards, behind as many tokens; None: it cannot stand there."""
    seconds: float
    """Of everything."""


@dataclass(frozen=True)
class Heard:
    """What is known of a passage while the method is in the model."""

    nats: np.ndarray
    """float64 [T - 1]."""
    answers: tuple[Answer, ...]
    decode_s: float
    cache_bytes: int


@torch.inference_mode()
def hear(model: PreTrainedModel, passage: Passage, target: int, cache: Any, tick: Callable[[float], None]) -> Heard:
    """Reads a passage under whatever the model is at the moment, into an empty cache (None: the model's own kind).

    Raises LengthenError for losses that are not finite.
    """
    ids = torch.from_numpy(passage.ids)[None].to(model.device)
    read = prefill(model, ids, tick, cache)
    nats = losses(model, read, ids).cpu().numpy()
    bad = int((~np.isfinite(nats)).sum())
    if bad:
        raise LengthenError(
            f"{bad} of {len(nats)} losses are not finite, the first at token {int(np.argmin(np.isfinite(nats))) + 1}."
        )
    size = cache_bytes(read.cache, len(passage.ids), target)
    return Heard(nats, _answers(model, read, passage), decode_seconds(model, read.cache), size)


@torch.inference_mode()
def decode_seconds(model: PreTrainedModel, cache: Any) -> float:
    """Median seconds of one more token behind a cached text; the cache stays as it is."""
    grown, times = fork(cache), []
    one = torch.ones(1, 1, dtype=torch.long, device=model.device)
    for _ in range(DECODED):
        start = perf_counter()
        proceed(model, grown, one).sum().item()
        times.append(perf_counter() - start)
    return median(times[1:])


@torch.inference_mode()
def stock_seconds(model: PreTrainedModel, tokens: int) -> float | None:
    """Median seconds of one more token behind so many, in the model as it is; None where its positions end before."""
    try:
        return decode_seconds(model, filled(model, tokens))
    except IndexError:
        return None


def binned(nats: np.ndarray, scored: np.ndarray, trained: int, first: int) -> tuple[list[float], list[int]]:
    """Sums and counts by bin of the target's position, from position `first` on. nats, scored: [T - 1], of positions 1 to T - 1."""
    position = np.arange(1, len(nats) + 1)
    kept = scored & (position >= first)
    place = position[kept] * BINS // trained
    size = int(position[-1] * BINS // trained) + 1
    sums = np.bincount(place, weights=nats[kept], minlength=size)
    return sums.tolist(), np.bincount(place, minlength=size).tolist()


def _answers(model: PreTrainedModel, read: Prefilled, passage: Passage) -> tuple[Answer, ...]:
    """Every question is asked right behind the passage, and sees no other."""
    found, asked = [], passage.needles
    for n, question in enumerate(asked.questions):
        ids = torch.tensor([question], device=model.device)
        log_p = proceed(model, fork(read.cache), ids)[list(asked.choices)].double().log_softmax(0)
        found.append(Answer(passage.distances[n], -log_p[n].item(), int(log_p.argmax()) == n))
    return tuple(found)


def finished(heard: Heard, passage: Passage, trained: int, first: int, stock_s: float | None, seconds: float) -> Reading:
    """The reading as it is kept."""
    nats, tokens = binned(heard.nats, passage.scored, trained, first)
    return Reading(tuple(nats), tuple(tokens), heard.answers, heard.cache_bytes, heard.decode_s, stock_s, seconds)
