"""A comparison that has been run: numbers over seeds and documents, with intervals."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .statistics import Interval, mean_interval, paired_bootstrap


@dataclass(frozen=True)
class Cell:
    """One method at one length by one protocol under one control, over all seeds."""

    method: str
    protocol: str
    length: int
    control: str
    loss: Interval
    """Nats per token."""
    bits_per_byte: float | None
    change: Interval
    """Nats per token above the method's own plain value at the training length, on the same targets, paired."""
    by_seed: tuple[float, ...]
    """Nats per token of each seed."""
    least_context: int
    reason: str | None
    """Why there is no number."""


@dataclass(frozen=True)
class Comparison:
    """What the runs of a folder found."""

    methods: tuple[str, ...]
    """Specs, in the order asked for."""
    train_length: int
    """Tokens per training sequence, L."""
    lengths: tuple[int, ...]
    """Tokens per window that was read, rising, L among them."""
    settings: Mapping[str, Any]
    """Everything else that decided the runs."""
    results: Sequence[Mapping[str, Any]]
    """What each run wrote."""
    cost: Mapping[str, Any] | None
    """Speed and memory of ALiBi at L against sinusoidal at 2L, where they were measured."""

    def runs(self, method: str, train_length: int | None = None) -> list[Mapping[str, Any]]:
        """The runs of a method, by seed."""
        length = train_length if train_length is not None else self.train_length
        mine = [r for r in self.results if (r["spec"]["method"], r["spec"]["train_length"]) == (method, length)]
        return sorted(mine, key=lambda r: r["spec"]["seed"])

    def failures(self) -> list[Mapping[str, Any]]:
        """Runs that did not end well."""
        return [r for r in self.results if r["training"]["status"] != "done"]

    def cell(self, method: str, length: int, protocol: str = "fixed_targets", control: str = "none") -> Cell | None:
        """One number over seeds; None where no run of the method was read so."""
        return self.cells.get((method, self.train_length, protocol, length, control))

    def long_cell(self, length: int) -> Cell | None:
        """Sinusoidal trained at twice the length for ALiBi's time, read at `length` by the fixed targets."""
        return self.cells.get(("sinusoidal", 2 * self.train_length, "fixed_targets", length, "none"))

    @cached_property
    def cells(self) -> dict[tuple[str, int, str, int, str], Cell]:
        """Every number, by method, training length, protocol, length and control."""
        return {key: cell for key, cell in self._cells()}

    def _cells(self) -> Iterator[tuple[tuple[str, int, str, int, str], Cell]]:
        trained = sorted({(r["spec"]["method"], r["spec"]["train_length"]) for r in self.results})
        for method, train_length in trained:
            read = [_readings(r) for r in self.runs(method, train_length) if "evaluation" in r]
            for key in read[0] if read else ():
                own = [r[key[0], train_length, "none"] for r in read]
                yield (method, train_length, *key), _cell(method, key, [r[key] for r in read], own)

    def summary(self) -> dict[str, Any]:
        """Every number with its interval, fit for JSON."""
        return {
            "settings": dict(self.settings),
            "cells": [{"train_length": key[1], **asdict(cell)} for key, cell in self.cells.items()],
            "runs": [{**r["spec"], **r["training"], "parameters": r["parameters"]} for r in self.results],
            "resolution": [{**r["spec"], **r["resolution"]} for r in self.results if "resolution" in r],
            "cost": self.cost,
        }


def _readings(result: Mapping[str, Any]) -> dict[tuple[str, int, str], Mapping[str, Any]]:
    return {(r["protocol"], r["length"], r["control"]): r for r in result["evaluation"]["readings"]}


def _cell(method: str, key: tuple[str, int, str], found: list, own: list) -> Cell:
    nats, tokens = _stack(found, "nats"), _stack(found, "tokens")[0]
    size = None if found[0]["bytes"] is None else _stack(found, "bytes")[0]
    loss = mean_interval(nats, tokens)
    return Cell(
        method,
        *key,
        loss=loss,
        bits_per_byte=None if size is None else float(loss.value * tokens.sum() / np.log(2) / size.sum()),
        change=paired_bootstrap(nats, _stack(own, "nats"), tokens),
        by_seed=tuple(float(n.sum() / tokens.sum()) for n in nats),
        least_context=found[0]["least_context"],
        reason=found[0]["reason"],
    )


def _stack(found: list[Mapping[str, Any]], field: str) -> np.ndarray:
    """[seeds, documents]; null is not a number."""
    return np.array([[np.nan if x is None else x for x in f[field]] for f in found], dtype=np.float64)
