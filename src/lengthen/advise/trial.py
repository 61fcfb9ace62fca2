"""One candidate put into the model, tried on a passage, and taken out again, whatever happens."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from lengthen.core import LengthenError, Refusal
from lengthen.hf import Extension, extend
from lengthen.hf.bounded import BoundedCache
from lengthen.hf.export import not_vanilla, server_flags
from lengthen.hf.export.servers import SERVERS
from lengthen.hf.interpolate import kind_of
from lengthen.hf.request import Request

from .candidates import AS_IS, Candidate
from .passages import Passage
from .reading import Reading, finished, hear, stock_seconds

FULL = "full_attention"
"""The layer type that is extended in checkpoints with a spectrum per layer type: the others see their own window only."""


@dataclass(frozen=True)
class Facts:
    """What is so whatever is read."""

    sees: int
    """Tokens that the last token of the target sees, itself included."""
    readers: tuple[str, ...]
    """What can run it without us: 'transformers' by a plain configuration, and servers by their flags."""
    why: str | None
    """Why no plain configuration of transformers expresses it; None: one does."""


@dataclass(frozen=True)
class Trial:
    """What came of one candidate and passage: a reading, or why there is none."""

    candidate: Candidate
    passage: int
    """Its number, from 0."""
    reading: Reading | None = None
    facts: Facts | None = None
    failure: str | None = None


def try_out(
    model: PreTrainedModel,
    candidate: Candidate,
    passage: Passage,
    number: int,
    *,
    trained: int,
    target: int,
    first: int,
    original: int | None = None,
    tick: Callable[[float], None] = lambda share: None,
) -> Trial:
    """Reads a passage under a candidate; the model is as before afterwards. Whatever goes wrong becomes the trial's failure."""
    start = perf_counter()
    try:
        with _under(model, candidate, target, original) as extension:
            heard = hear(model, passage, target, _forgetful(extension), tick)
            facts = facts_of(extension, target)
        stock = heard.decode_s if extension is None else stock_seconds(model, len(passage.ids))
        reading = finished(heard, passage, trained, first, stock, perf_counter() - start)
        return Trial(candidate, number, reading, facts)
    except Exception as error:
        return Trial(candidate, number, failure=reason(error))


def facts_of(extension: Extension | None, target: int) -> Facts:
    """None: the checkpoint as it is, which sees everything and needs nobody."""
    if extension is None:
        return Facts(target, ("transformers", *(server.name for server in SERVERS)), None)
    why = not_vanilla(extension)
    served = [f.server.name for f in server_flags(extension) if f.why is None]
    return Facts(seen(extension, target), (*(["transformers"] if why is None else []), *served), why)


def request(config: PreTrainedConfig, spec: str) -> Request:
    """The spec, for the layers that see everything where layer types have spectra of their own."""
    return {FULL: spec} if by_layer(config) else spec


def by_layer(config: PreTrainedConfig) -> bool:
    """Whether layer types have spectra of their own, one of them for the layers that see everything."""
    rope = getattr(config, "rope_parameters", None)
    return isinstance(rope, dict) and "rope_type" not in rope and FULL in rope


def reason(error: Exception) -> str:
    """Why a trial failed, in a sentence; memory is named first."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or "allocate memory" in text:
        return f"out of memory: {text[:200]}"
    return text if isinstance(error, LengthenError) else f"{type(error).__name__}: {text[:300]}"


def seen(extension: Extension, target: int) -> int:
    """Tokens that the last of `target` tokens sees under the scheme that shows it least."""
    last, keys = torch.tensor([[target - 1]]), torch.arange(target)[None]
    counts = []
    for scheme in extension.schemes.values():
        shown = scheme.pattern(last, keys)
        if scheme.branches:
            shown = shown & torch.stack([b.region(last, keys) for b in scheme.branches]).any(0)
        counts.append(int(shown.sum()))
    return min(counts)


def _forgetful(extension: Extension | None) -> BoundedCache | None:
    """A cache that keeps what the scheme can still show; None where that is everything."""
    try:
        return extension.cache() if extension is not None else None
    except Refusal:
        return None


@contextmanager
def _under(model: PreTrainedModel, candidate: Candidate, target: int, original: int | None) -> Iterator[Extension | None]:
    if candidate.spec == AS_IS:
        yield None
        return
    with extend(model, request(model.config, candidate.spec), tokens=target, original=original) as extension:
        if kind_of(candidate.spec) is None:
            _require_nothing_to_learn(extension, candidate.spec)
        yield extension


def _require_nothing_to_learn(extension: Extension, spec: str) -> None:
    """Random numbers are no candidate. What is interpolated comes from the checkpoint, and was trained with it."""
    own = sum(p.numel() for scheme in extension.schemes.values() for p in scheme.parameters())
    if own:
        raise Refusal(f"{spec} has {own} parameters of its own, which this checkpoint never trained; it needs training first.")
