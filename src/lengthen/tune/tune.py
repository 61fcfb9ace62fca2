"""tune(): a model trained on for length, by the same loop that trains from scratch."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from lengthen.core import Rotation, UsageError
from lengthen.data import TokenDocument
from lengthen.models import Decoder, make_decoder
from lengthen.models.store import unique_tensors
from lengthen.train import Report, TrainResult, train

from .batches import TuneBatches
from .config import TuneConfig
from .lora import adapt, discard, merge
from .objective import DecoderObjective
from .way import Way

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from lengthen.hf import Extension


@dataclass(frozen=True)
class Tuned:
    """How a run ended, and the model, with plain weights."""

    result: TrainResult
    model: nn.Module
    """The model that was given, trained in place; under DroPE a decoder of ours without positions, on the same weights."""


def tune(
    subject: "Decoder | PreTrainedModel | Extension",
    documents: Sequence[TokenDocument],
    way: Way,
    config: TuneConfig,
    folder: str | Path,
    *,
    resume: bool = False,
    progress: Report | None = None,
) -> Tuned:
    """Trains a decoder of ours, a model of transformers, or one that `extend` gave another scheme, to read longer texts.

    documents: as tokens of the model. folder: train.jsonl and checkpoints; with `resume` the run goes on from the last one to
    the numbers it would have had, from a subject such as it was begun with. LoRA's updates are merged at the end; a run that
    is stopped takes them out again, and what it has learned is in its checkpoint.

    Raises UsageError before anything is touched where the data, the way, the settings or the folder cannot work, and Refusal
    for a scheme that leaves no room for the way.
    """
    objective = _objective(subject, way)
    try:
        return _run(objective, documents, way, config, folder, resume, progress)
    finally:
        objective.release()


def _objective(subject: Any, way: Way) -> DecoderObjective:
    if isinstance(subject, Decoder):
        return DecoderObjective(subject, way)
    from .hugging_face import HuggingFaceObjective

    return HuggingFaceObjective(subject, way)


def _run(objective, documents, way: Way, config: TuneConfig, folder, resume: bool, progress: Report | None) -> Tuned:
    model, training = objective.model, config.training
    _require_float32(model)
    batches = TuneBatches(documents, way, config.batch, training.steps, config.mix, training.seed)
    model.requires_grad_(True)
    if config.lora is not None:
        adapt(model, config.lora, training.seed)
    status = None
    try:
        objective.open()
        known = facts(objective, way, config)
        result = train(model, batches, training, folder, objective=objective, facts=known, resume=resume, progress=progress)
        status = result.status
    finally:
        if config.lora is not None:
            (merge if status == "done" else discard)(model)
    return Tuned(result, objective.outcome())


def facts(objective: nn.Module, way: Way, config: TuneConfig) -> dict[str, Any]:
    """What a resumed run must have in common with the one that was begun, beside training settings and data."""
    return {
        "way": {"name": type(way).__name__, **asdict(way)},
        "batch": config.batch,
        "mix": config.mix,
        "lora": None if config.lora is None else asdict(config.lora),
        "rotations": rotations_digest(objective.rotations()),
        "frozen": frozen_digest(objective.model),
    }


def rotations_digest(rotations: Iterable[Rotation | None]) -> str:
    """A hash of how the model turns positions 1 and 1000: another method would not go on to the same numbers."""
    digest, at = hashlib.sha256(), torch.tensor([[1.0, 1000.0]], dtype=torch.float64)
    for rotation in rotations:
        factors = None if rotation is None else rotation.factors(at, at[:, -1:], keys=True)
        digest.update(b"none" if factors is None else factors.cpu().numpy().round(9).tobytes())
    return digest.hexdigest()[:16]


def frozen_digest(model: nn.Module) -> str | None:
    """A hash of the weights that no checkpoint of the run holds; None where all are trained."""
    frozen = [p for p in model.parameters() if not p.requires_grad]
    digest = hashlib.sha256()
    for p in frozen:
        digest.update(p.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()[:16] if frozen else None


def _require_float32(model: nn.Module) -> None:
    kinds = {p.dtype for p in model.parameters()} - {torch.float32, torch.float64}
    if kinds:
        raise UsageError(
            f"The weights are {' and '.join(map(str, kinds))}, in which small updates vanish. Load them in float32, as in "
            "load(name, dtype='float32'); precision 'bf16' saves the time of it."
        )


def with_specs(model: Decoder, specs: Sequence[str] | str, train_length: int) -> Decoder:
    """A decoder of the same weights under other schemes; parameters of schemes start anew where the old ones do not fit."""
    other = make_decoder(model.config, specs, train_length)
    old, new = unique_tensors(model), unique_tensors(other)
    with torch.no_grad():
        for name, tensor in new.items():
            if name in old and old[name].shape == tensor.shape:
                tensor.copy_(old[name])
    return other.train(model.training)
