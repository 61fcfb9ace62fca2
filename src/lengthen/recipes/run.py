"""One run of a comparison: train a method under a seed, read it at every length, write down everything."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lengthen.analysis import analytic_scores, measured_scores, resolutions
from lengthen.core import LengthError, Refusal, UsageError
from lengthen.data import Batches, Prepared, prepare
from lengthen.evaluate import CONTROLS, Evaluation, evaluate, provenance, write_records
from lengthen.models import Decoder, make_decoder
from lengthen.models.store import save_decoder
from lengthen.train import TrainResult, train

from .config import CompareConfig, slug
from .files import write_json
from .pool import Report, Tick

RESULT = "result.json"
RESOLUTION_TOKENS = 4096
"""Held-out tokens on which mean logits are measured."""


@dataclass(frozen=True)
class RunSpec:
    """One training run."""

    method: str
    seed: int
    train_length: int
    steps: int
    batch: int

    @property
    def name(self) -> str:
        return f"{slug(self.method)}-L{self.train_length}-s{self.seed}"


def load_data(config: CompareConfig) -> Prepared:
    """The data of a comparison: held-out documents are long enough for the longest length."""
    longest = max(*config.lengths, config.train_length, 2 * config.train_length if config.cost else 0)
    return prepare(config.data, config.tokenizer, min_held_tokens=longest + 1)


def perform(spec: RunSpec, config: CompareConfig, folder: Path, report: Report) -> None:
    """Trains, evaluates and writes `folder/<run>/`; what is already there is not done again."""
    folder = folder / spec.name
    if (folder / RESULT).exists():
        return
    data = load_data(config)
    model, trained = _train(spec, config, data, folder, report)
    found: dict[str, Any] = {"spec": asdict(spec), "training": asdict(trained), "parameters": _parameters(model)}
    if trained.status == "stopped":
        raise KeyboardInterrupt
    if trained.status == "done":
        save_decoder(folder / "model", model, [spec.method], spec.train_length, spec.seed)
        data.tokenizer.save(folder / "tokenizer")
        read = _evaluate(spec, config, data, model, report)
        found["evaluation"] = as_json(read)
        found["resolution"] = _resolution(spec, model, data)
        rows = read.records(run=spec.name, method=spec.method, seed=spec.seed, extra={"training": asdict(trained)})
        write_records(folder / "records.jsonl", rows)
    found["provenance"] = provenance(data=data.provenance)
    write_json(folder / RESULT, found)


def _train(spec: RunSpec, config: CompareConfig, data: Prepared, folder: Path, report: Report) -> tuple[Decoder, TrainResult]:
    batches = Batches(data.train, spec.train_length, spec.batch, spec.seed, packing="cut")
    model = make_decoder(config.model(data.tokenizer.vocab), spec.method, spec.train_length, spec.seed)

    def tell(step: int, loss: float, tokens_per_s: float, seconds_left: float) -> None:
        report(Tick(spec.name, "train", step, spec.steps, f"loss {loss:.3f}  {tokens_per_s:,.0f} tokens/s"))

    result = train(model, batches, config.training(spec.seed, spec.steps), folder, resume=True, progress=tell)
    return model.eval(), result


def _evaluate(spec: RunSpec, config: CompareConfig, data: Prepared, model: Decoder, report: Report) -> Evaluation:
    return evaluate(
        model,
        [d.ids for d in data.held],
        train_length=spec.train_length,
        lengths=tuple(n for n in config.lengths if n >= 2),
        protocols=config.protocols,
        controls=config.controls,
        targets=config.targets,
        stride=config.stride,
        most_documents=config.documents,
        token_bytes=data.tokenizer.token_bytes,
        progress=lambda done, total: report(Tick(spec.name, "read", done, total, "tokens")),
    )


def _resolution(spec: RunSpec, model: Decoder, data: Prepared) -> dict[str, dict[str, Any]]:
    """Attention resolution at L, 2L and 4L, plain and under BCA: from the scheme alone, and from the model's mean logits."""
    length = spec.train_length
    at = (length, 2 * length, 4 * length)
    long = [d.ids for d in data.held if len(d.ids) > at[-1] + 1]
    rows = max(1, RESOLUTION_TOKENS // at[-1])
    ids = torch.from_numpy(np.stack([d[: at[-1] + 1] for d in long[:rows]])) if long else None
    shape = model.config.shape(length)

    def of(arm: Decoder) -> dict[str, Any]:
        measured = _try(lambda: resolutions(measured_scores(arm, ids, at[-1]), at)) if long else "no document is long enough"
        return {"analytic": _try(lambda: resolutions(analytic_scores(arm.schemes[0], shape, at[-1]), at)), "measured": measured}

    return {"none": of(model), "bca": of(CONTROLS["bca"].over(model, length))}


def _try(measure) -> dict[int, float] | str:
    """What was measured, or why it cannot be."""
    try:
        return measure()
    except (LengthError, Refusal, UsageError) as error:
        return str(error)


def _parameters(model: Decoder) -> dict[str, int]:
    own = {p for s in model.schemes for p in s.parameters()}
    return {"model": sum(p.numel() for p in model.parameters()), "scheme": sum(p.numel() for p in own)}


def as_json(read: Evaluation) -> Mapping[str, Any]:
    """The sums per document of every reading, from which paired statistics over seeds are made."""
    return {
        "train_length": read.train_length,
        "lengths": read.lengths,
        "seconds": read.seconds,
        "tokens_read": read.tokens_read,
        "documents": asdict(read.selection),
        "settings": dict(read.settings),
        "readings": [
            {
                "protocol": protocol,
                "length": length,
                "control": control,
                "nats": r.nats,
                "tokens": r.tokens,
                "bytes": r.bytes,
                "least_context": r.least_context,
                "reason": r.reason,
            }
            for (protocol, length, control), r in read.readings.items()
        ],
        "curves": {control: {"edges": c.edges, "nats": c.means} for control, c in read.curves.items()},
    }
