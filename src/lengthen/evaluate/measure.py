"""Reading a model beyond its training length: one forward per window serves every protocol that needs it."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from time import perf_counter

import numpy as np
from torch import nn

from lengthen.core import LengthError
from lengthen.core.errors import UsageError, require_count

from .controls import find_controls, require_causal
from .documents import check_lengths, check_tokens, select
from .evaluation import Curve, Evaluation, Reading
from .losses import Window, window_losses
from .protocols import Pick, Protocol, make_protocols

TokenBytes = Callable[[np.ndarray], np.ndarray] | np.ndarray
"""int64 [T] -> UTF-8 bytes of each token [T]; or a table [vocabulary]."""
Losses = dict[Window, np.ndarray]


def evaluate(
    model: nn.Module,
    documents: Sequence[np.ndarray],
    *,
    train_length: int,
    lengths: Sequence[int],
    protocols: Sequence[str] = ("non_overlapping", "sliding", "fixed_targets"),
    controls: Sequence[str] = ("none", "window", "bca"),
    targets: int = 64,
    stride: int | None = None,
    scored: int | None = None,
    sliding_scored: int | None = None,
    most_documents: int = 16,
    token_bytes: TokenBytes | None = None,
    batch_tokens: int = 8192,
    backend: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Reads whole held-out documents, int64 [tokens] each, at every length by every protocol under every control.

    model: has `hidden`, `head`, `config.vocab`, `schemes` and `under`, as `Decoder`. It must be causal.
    lengths: tokens per window, rising; the training length is read too, for the model's own in-length value.
    controls: besides `none`, the same weights under `window` or `bca`; where these hide nothing, the plain reading stands.
    targets, stride, scored, sliding_scored: see `make_protocols`. most_documents: spread over those that are long enough.
    token_bytes: for bits per byte. batch_tokens: most tokens per forward. progress: hears tokens read, tokens in all.

    The documents read are those longer than the longest length. A length that the method has no answer for (LengthError)
    gives a reading of NaN with the reason; losses that are not finite stay in the sums. Raises UsageError.
    """
    require_count("evaluate", "train_length", train_length, "tokens", least=2)
    require_count("evaluate", "batch_tokens", batch_tokens, "tokens")
    require_causal(model)
    asked = check_lengths(lengths)
    every = sorted({*asked, train_length})
    plan = make_protocols(protocols, every, scored=scored, sliding_scored=sliding_scored, targets=targets, stride=stride)
    over = find_controls(controls)
    documents = check_tokens(documents, model.config.vocab)
    selection = select(documents, every[-1], most_documents)
    script = _Script([documents[n] for n in selection.chosen], plan, token_bytes)
    arms = {"none": model, **{c.name: c.over(model, train_length) for c in over}}
    free = {"none": 0, **{c.name: c.free(train_length) for c in over}}
    jobs = [(n, arm) for n in every for arm in arms if n > free[arm]]
    windows = {n: script.windows(n) for n in every}
    meter = _Meter(sum(stop - start for n, _ in jobs for _, start, stop in windows[n]), progress)

    began, readings, curves = perf_counter(), {}, {}
    for n, arm in jobs:
        how = dict(batch_tokens=batch_tokens, backend=backend, tick=meter)
        try:
            losses, reason = window_losses(arms[arm], script.documents, windows[n], **how), None
        except LengthError as error:
            losses, reason = None, str(error)
        readings |= {(p.name, n, arm): script.reading(p, n, losses, reason) for p in plan}
        if n == every[-1] and losses is not None:
            curves[arm] = script.curve(n, losses)
    return Evaluation(
        train_length=train_length,
        lengths=tuple(every),
        protocols=tuple(p.name for p in plan),
        controls=tuple(arms),
        readings={
            (p.name, n, arm): readings[p.name, n, arm if n > free[arm] else "none"] for p in plan for n in every for arm in arms
        },
        curves={arm: curves[source] for arm in arms if (source := arm if every[-1] > free[arm] else "none") in curves},
        selection=selection,
        settings={p.name: asdict(p) for p in plan},
        tokens_read=meter.read,
        seconds=perf_counter() - began,
    )


class _Meter:
    """Counts the tokens read and tells them on."""

    def __init__(self, total: int, report: Callable[[int, int], None] | None):
        self.total, self.report, self.read = total, report, 0

    def __call__(self, tokens: int) -> None:
        self.read += tokens
        if self.report is not None:
            self.report(self.read, self.total)


class _Script:
    """What is read of the documents at each length, and how each protocol picks its losses from it."""

    def __init__(self, documents: list[np.ndarray], protocols: Sequence[Protocol], token_bytes: TokenBytes | None):
        self.documents, self.protocols = documents, protocols
        self.predictions = [len(ids) - 1 for ids in documents]
        self.bytes = None if token_bytes is None else [_bytes(ids[1:], token_bytes) for ids in documents]

    def picks(self, protocol: Protocol, length: int) -> list[list[Pick]]:
        """Per document."""
        return [protocol.picks(p, length) for p in self.predictions]

    def windows(self, length: int) -> list[Window]:
        """Every window that some protocol wants, once; the last of each document, which the curve reads, always."""
        last = [(d, p - length, p) for d, p in enumerate(self.predictions)]
        wanted = [(d, *k.window) for p in self.protocols for d, found in enumerate(self.picks(p, length)) for k in found]
        return list(dict.fromkeys([*last, *wanted]))

    def reading(self, protocol: Protocol, length: int, losses: Losses | None, reason: str | None) -> Reading:
        """Sums per document of what the protocol scores; NaN where there are no losses."""
        picks = self.picks(protocol, length)
        score = lambda d, k: np.nan if losses is None else losses[d, *k.window][k.first - k.start :].sum()
        total = lambda of: np.array([sum(of(d, k) for k in found) for d, found in enumerate(picks)])
        tokens = total(lambda d, k: k.scored)
        return Reading(
            nats=total(score),
            tokens=tokens,
            bytes=None if self.bytes is None else total(lambda d, k: self.bytes[d][k.first : k.stop].sum()),
            least_context=min(k.least_context for found in picks for k in found),
            mean_context=float(total(lambda d, k: k.mean_context * k.scored).sum() / tokens.sum()),
            reason=reason,
        )

    def curve(self, length: int, losses: Losses) -> Curve:
        """Loss against position in the last window of each document, in bins that widen by sqrt(2)."""
        rising = np.round(2 ** (np.arange(2 * np.log2(length)) / 2)).astype(int)
        edges = np.unique([0, *rising, length])
        rows = np.stack([losses[d, p - length, p] for d, p in enumerate(self.predictions)])
        return Curve(edges, np.add.reduceat(rows, edges[:-1], axis=1))


def _bytes(ids: np.ndarray, token_bytes: TokenBytes) -> np.ndarray:
    if not callable(token_bytes) and ids.size and ids.max() >= len(token_bytes):
        raise UsageError(
            f"The table 'token_bytes' has {len(token_bytes)} entries, and token {ids.max()} was read. Give one per id."
        )
    found = np.asarray(token_bytes(ids) if callable(token_bytes) else np.asarray(token_bytes)[ids], dtype=np.float64)
    if found.shape != ids.shape:
        raise UsageError(f"'token_bytes' must give a number of bytes for each of {ids.size} tokens, got {list(found.shape)}.")
    return found
