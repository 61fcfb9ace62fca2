"""Checkpoints: safetensors and JSON, a folder at a time, never unpickled."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lengthen.core import UsageError
from lengthen.models.store import (
    atomic_folder,
    read_json,
    read_tensors,
    require_fit,
    settle,
    unique_tensors,
    write_tensors,
)

from .config import TrainConfig
from .ledger import Ledger
from .optim import optimizer_tensors, put_optimizer_tensors

_STATE, _MODEL, _OPTIMIZER = "state.json", "model.safetensors", "optimizer.safetensors"


class Checkpoints:
    """The newest checkpoint of a run: trained weights, optimiser, books, settings, data. One is always whole.

    `facts`: what else decides the run, fit for JSON: how a pretrained model is tuned, what its frozen weights are.
    """

    def __init__(self, folder: Path, config: TrainConfig, data: Mapping[str, Any], facts: Mapping[str, Any] | None = None):
        self.folder, self.config, self.data = folder, config, dict(data)
        self.facts = json.loads(json.dumps(facts if facts is not None else {}))

    def exists(self) -> bool:
        """Whether there is one, after an interrupted write is settled."""
        settle(self.folder)
        return self.folder.exists()

    def write(self, model: nn.Module, optimizer: torch.optim.Optimizer, ledger: Ledger, history: int) -> None:
        """Replaces the checkpoint. `history`: bytes of train.jsonl that belong to it.

        Raises LengthenError where the disk refuses; the previous checkpoint stays whole.
        """
        run = {"config": asdict(self.config), "facts": self.facts, "data": self.data}
        state = {**run, "history": history, "ledger": asdict(ledger)}
        with atomic_folder(self.folder, f"the checkpoint of step {ledger.step}") as partial:
            write_tensors(partial / _MODEL, trained_tensors(model))
            write_tensors(partial / _OPTIMIZER, optimizer_tensors(optimizer, model))
            (partial / _STATE).write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")

    def read(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Ledger, int]:
        """Puts the checkpoint into `model` and `optimizer`; returns its books and the bytes of train.jsonl.

        Raises UsageError, before anything is changed, where settings, data or shapes differ or a file is damaged.
        """
        state = self._whole(read_json, _STATE)
        try:
            config, facts, data = state["config"], state["facts"], state["data"]
            history, ledger = state["history"], Ledger(**state["ledger"])
        except (KeyError, TypeError) as error:
            raise UsageError(f"{self.folder / _STATE} is no checkpoint of this version of lengthen: {error}.") from error
        self._require_same(config, facts, data)
        weights, moments = self._whole(read_tensors, _MODEL), self._whole(read_tensors, _OPTIMIZER)
        trained = trained_tensors(model)
        require_fit(weights, trained, self.folder / _MODEL)
        shapes = dict(model.named_parameters())
        require_fit(moments, {k: _like(k, shapes, t) for k, t in moments.items()}, self.folder / _OPTIMIZER)
        for name, tensor in trained.items():
            tensor.data = weights[name].to(tensor.device, copy=True)  # aligned anew: see `models.store.put`
        put_optimizer_tensors(moments, optimizer, model)
        return ledger, history

    def _whole(self, read: Callable[[Path], Any], name: str) -> Any:
        """A file of the checkpoint; where it is missing or damaged, the error says how to go on."""
        try:
            return read(self.folder / name)
        except UsageError as error:
            raise UsageError(f"{error} Remove {self.folder.parent} to begin that run anew.") from error

    def _require_same(self, config: Mapping[str, Any], facts: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        settings = [(f.name, config.get(f.name), getattr(self.config, f.name)) for f in fields(TrainConfig)]
        settings += [(name, facts.get(name), self.facts.get(name)) for name in sorted(facts.keys() | self.facts.keys())]
        for name, was, now in settings:
            if was != now:
                raise UsageError(
                    f"The run in {self.folder.parent} was begun with {name}={was!r} and would resume with {name}={now!r}. "
                    "Resume with the same settings, or start a new folder."
                )
        for name, now in self.data.items():
            if data.get(name) != now:
                raise UsageError(
                    f"The run in {self.folder.parent} was begun on other data: its {name} was {data.get(name)!r} and is "
                    f"{now!r} now. Resume with the same data, or start a new folder."
                )


def trained_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters that are trained, and persistent buffers, each once; what is frozen comes from where the model came from."""
    frozen = {id(p) for p in model.parameters() if not p.requires_grad}
    return {name: t for name, t in unique_tensors(model).items() if id(t) not in frozen}


def _like(key: str, parameters: Mapping[str, Tensor], found: Tensor) -> Tensor:
    """What an entry of the optimiser must be shaped like: its parameter, or the number that counts steps."""
    name, _, entry = key.rpartition("/")
    if name not in parameters:
        raise UsageError(f"The checkpoint holds optimiser state of {name!r}, which this model does not have.")
    return found.new_empty(()) if entry == "step" else parameters[name]


def data_facts(tokens_per_step: int, *first: Any) -> dict[str, Any]:
    """What is checked of the data when a run resumes: its size and a hash of the first batch."""
    digest = hashlib.sha256()
    for array in first:
        digest.update(np.ascontiguousarray(array).tobytes())
    return {"tokens_per_step": tokens_per_step, "first_batch": digest.hexdigest()[:16]}
