"""What an evaluation found: sums per document, from which every number and every paired interval is made."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lengthen.core.errors import unknown

from .documents import Selection
from .records import Record
from .statistics import Interval, mean_interval, paired_bootstrap

TASK = "language_modelling"


@dataclass(frozen=True)
class Reading:
    """One protocol at one length under one control: sums per document, so that nothing is a mean of means."""

    nats: np.ndarray
    """float64 [documents], summed over the predictions scored. Not finite where the model's losses were not."""
    tokens: np.ndarray
    """int64 [documents], predictions scored."""
    bytes: np.ndarray | None
    """float64 [documents], UTF-8 bytes of the tokens scored; None: the tokenizer was not given."""
    least_context: int
    """Tokens read by the scored prediction that had read least."""
    mean_context: float
    """Tokens read by a scored prediction, on average."""
    reason: str | None = None
    """Why there are no losses: the method has no answer at this length."""

    @property
    def nats_per_token(self) -> float:
        return float(self.nats.sum() / self.tokens.sum())

    @property
    def perplexity(self) -> float:
        with np.errstate(over="ignore"):
            return float(np.exp(self.nats_per_token))

    @property
    def bits_per_byte(self) -> float | None:
        return None if self.bytes is None else float(self.nats.sum() / math.log(2) / self.bytes.sum())


@dataclass(frozen=True)
class Curve:
    """Loss against position in the last window of the longest length, in bins that widen by sqrt(2)."""

    edges: np.ndarray
    """int64 [bins + 1]; bin k holds the predictions with edges[k] + 1 to edges[k + 1] tokens of context."""
    nats: np.ndarray
    """float64 [documents, bins], summed."""

    @property
    def means(self) -> np.ndarray:
        """Nats per token, float64 [bins]."""
        return self.nats.sum(0) / (len(self.nats) * np.diff(self.edges))


@dataclass(frozen=True)
class Evaluation:
    """Every reading of one model."""

    train_length: int
    lengths: tuple[int, ...]
    """Tokens per window, rising, the training length among them."""
    protocols: tuple[str, ...]
    controls: tuple[str, ...]
    """`none` first."""
    readings: Mapping[tuple[str, int, str], Reading]
    """By protocol, length and control."""
    curves: Mapping[str, Curve]
    """By control; empty where the method has no answer at the longest length."""
    selection: Selection
    """Which documents were read."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By protocol: predictions scored per document, stride."""
    tokens_read: int = 0
    """Tokens that went through the model."""
    seconds: float = 0.0

    def reading(self, protocol: str, length: int, control: str = "none") -> Reading:
        """One reading. Raises UnknownNameError where it was not made."""
        key = (protocol, length, control)
        if key not in self.readings:
            raise unknown("reading", " / ".join(map(str, key)), (" / ".join(map(str, k)) for k in self.readings))
        return self.readings[key]

    def per_document(self, protocol: str, length: int, control: str = "none") -> np.ndarray:
        """Nats summed per document, float64 [documents]: what paired statistics want, with `tokens` as weights."""
        return self.reading(protocol, length, control).nats

    def tokens(self, protocol: str) -> np.ndarray:
        """Predictions scored per document, int64 [documents]: the same ones at every length and under every control."""
        return self.reading(protocol, self.train_length).tokens

    def interval(self, protocol: str, length: int, control: str = "none", **how) -> Interval:
        """Nats per token."""
        found = self.reading(protocol, length, control)
        return mean_interval(found.nats, found.tokens, **how)

    def change(self, protocol: str, length: int, control: str = "none", **how) -> Interval:
        """Nats per token above the model's own value at the training length, on the same predictions, paired."""
        found, own = self.reading(protocol, length, control), self.reading(protocol, self.train_length)
        return paired_bootstrap(found.nats, own.nats, found.tokens, **how)

    def records(
        self, *, run: str, method: str, seed: int | None, params: Mapping[str, Any] | None = None, extra: Mapping | None = None
    ) -> list[Record]:
        """Every number with its interval: `nats_per_token`, `bits_per_byte`, `nats_above_in_length`, and the curve against
        position as protocol `position`. `extra` goes beside each."""
        shared = dict(run=run, method=method, seed=seed, train_length=self.train_length, task=TASK, params=dict(params or {}))
        rows = []
        for (protocol, length, control), found in self.readings.items():
            place = dict(eval_length=length, protocol=protocol, control=control)
            beside = {**(extra or {}), **self._beside(protocol, found)}
            for metric, interval in self._metrics(protocol, length, control).items():
                rows.append(_record(interval, found.reason, metric=metric, extra=beside, **place, **shared))
        for control, curve in self.curves.items():
            place = dict(eval_length=self.lengths[-1], protocol="position", control=control, metric="nats_per_token")
            for k, (a, b) in enumerate(zip(curve.edges[:-1], curve.edges[1:], strict=True)):
                interval = mean_interval(curve.nats[:, k], np.full(len(curve.nats), b - a))
                beside = {**(extra or {}), "least_context": int(a) + 1, "most_context": int(b)}
                rows.append(_record(interval, None, extra=beside, **place, **shared))
        return rows

    def _metrics(self, protocol: str, length: int, control: str) -> dict[str, Interval]:
        found = self.reading(protocol, length, control)
        made = {"nats_per_token": self.interval(protocol, length, control)}
        if found.bytes is not None:
            made["bits_per_byte"] = mean_interval(found.nats / math.log(2), found.bytes)
        if length != self.train_length:
            made["nats_above_in_length"] = self.change(protocol, length, control)
        return made

    def _beside(self, protocol: str, found: Reading) -> dict[str, Any]:
        return {
            "tokens": int(found.tokens.sum()),
            "bytes": None if found.bytes is None else float(found.bytes.sum()),
            "least_context": found.least_context,
            "mean_context": found.mean_context,
            "documents_too_short": self.selection.too_short,
            "documents_spare": self.selection.spare,
            **self.settings[protocol],
        }


def _record(interval: Interval, reason: str | None, **fields: Any) -> Record:
    return Record(
        value=interval.value,
        low=interval.low,
        high=interval.high,
        n=interval.documents,
        reason=reason if reason is not None else interval.note,
        **fields,
    )
