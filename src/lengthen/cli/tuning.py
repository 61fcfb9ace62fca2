"""What `lengthen tune` does with a decoder of ours and with a checkpoint; `lengthen extend --tune` may call it too."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthen.hf import Extension
    from lengthen.tune import Tuned, Way


@dataclass(frozen=True)
class TuneOptions:
    """What `lengthen tune` and `lengthen extend --tune` ask alike."""

    way: str
    """A name of `tune.named.WAYS`."""
    steps: int
    """Optimiser steps."""
    data: str
    """See `lengthen.data.load_corpus`."""
    out: Path
    """Where train.jsonl and checkpoints go."""
    lr: float = 2e-5
    """Peak learning rate."""
    batch: int = 8
    """Rows per step."""
    accumulate: int = 1
    """Pieces that a step is read in."""
    precision: str = "fp32"
    """'fp32' or 'bf16'."""
    lora: int | None = None
    """Rank; None: every weight is trained."""
    mix: float = 0.0
    """Share of the steps at the trained length."""
    chunks: int = 2
    """Of PoSE."""
    group: int | None = None
    """Of S2; None: a quarter of the target."""
    drop_at: float = 0.0
    """Of DroPE: the share of the steps after which positions are dropped."""
    seed: int = 0
    """Of data order and positions."""
    resume: bool = False
    """Go on in a folder that exists."""


def train_on(subject: Any, tokenizer: Any, way: "Way", options: TuneOptions) -> "Tuned":
    """Tunes a decoder, a model or an Extension on `options.data`, with a bar; what `lengthen extend --tune` calls.

    tokenizer: of transformers, or of lengthen.
    """
    from lengthen.train import TrainConfig, progress_bar
    from lengthen.tune import Lora, TuneConfig
    from lengthen.tune import tune as run

    training = TrainConfig(
        options.steps,
        lr=options.lr,
        seed=options.seed,
        precision=options.precision,
        accumulate=options.accumulate,
        checkpoint_every=min(500, max(1, options.steps // 4)),
        log_every=min(10, options.steps),
    )
    lora = Lora(options.lora) if options.lora is not None else None
    config = TuneConfig(training, options.batch, lora, options.mix)
    with progress_bar(f"tune {options.way}", options.steps) as tell:
        return run(
            subject, documents_of(options.data, tokenizer), way, config, options.out, resume=options.resume, progress=tell
        )


def documents_of(data: str, tokenizer: Any) -> list:
    from lengthen.data import TokenDocument, load_corpus

    encode = encoder_of(tokenizer)
    return [TokenDocument(d.name, encode(d.text), d.source) for d in load_corpus(data).documents]


def encoder_of(tokenizer: Any):
    import numpy as np

    from lengthen.data import Tokenizer

    if isinstance(tokenizer, Tokenizer):
        return tokenizer.encode
    return lambda text: np.array(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"], dtype=np.int64)


def _way(options: TuneOptions, trained: int, target: int) -> "Way":
    from lengthen.tune.named import make_way

    return make_way(options.way, trained, target, chunks=options.chunks, group=options.group, drop_at=options.drop_at)


def tuned_decoder(folder: Path, method: str | None, target: str, options: TuneOptions) -> dict[str, Any]:
    """A decoder of ours, as `compare` keeps it: folders model and tokenizer."""
    from lengthen.advise.amounts import tokens_of
    from lengthen.data import load_saved
    from lengthen.models.store import load_decoder, read_json, save_decoder
    from lengthen.tune import Dropped, with_specs

    about = read_json(folder / "model" / "config.json")
    trained, tokenizer = about["train_length"], load_saved(folder / "tokenizer")
    way = _way(options, trained, tokens_of(target, trained))
    model = load_decoder(folder / "model")
    specs = about["specs"] if method is None else [method]
    if method is not None:
        model = with_specs(model, specs, trained)
    tuned = train_on(model, tokenizer, way, options)
    place = None
    if tuned.result.status == "done":
        place = options.out / "model"
        save_decoder(place, tuned.model, [way.spec] if isinstance(way, Dropped) else specs, trained, about["seed"])
        tokenizer.save(options.out / "tokenizer")
    return _about(tuned, place)


def tuned_checkpoint(name: str, method: str | None, target: str, options: TuneOptions) -> dict[str, Any]:
    """A checkpoint of transformers."""
    from lengthen.advise.amounts import tokens_of
    from lengthen.hf import export, extend
    from lengthen.hf.export.folder import require_free
    from lengthen.hf.request import trained_length

    require_free(options.out / "model")
    model, tokenizer = loaded(name, options.data)
    trained = trained_length(model.config)
    way = _way(options, trained, tokens_of(target, trained))
    subject = model if method is None else extend(model, method, tokens=way.target, route=_route(options))
    tuned = train_on(subject, tokenizer, way, options)
    place = None
    if tuned.result.status == "done":
        place = export(_final(model, subject, method, way), options.out / "model", tokenizer=tokenizer).folder
    return _about(tuned, place)


def _route(options: TuneOptions) -> str | None:
    """S2 attention is ours; everything else takes the cheapest route."""
    return "turned" if options.way == "s2" else None


def _final(model: Any, subject: "Any | Extension", method: str | None, way: "Way") -> "Extension":
    """The tuned model as it is to be read: without positions, under the method on its cheapest route, or as it was."""
    from lengthen.hf import extend, own_scheme
    from lengthen.tune import Dropped

    if method is not None:
        subject.restore()
        return extend(model, method, tokens=way.target)
    if isinstance(way, Dropped):
        return extend(model, way.spec, tokens=way.target)
    return extend(model, own_scheme(model, tokens=way.target), tokens=way.target)


def _about(tuned: "Tuned", place: Path | None) -> dict[str, Any]:
    """What is printed."""
    result = tuned.result
    end = f"The tuned model is {place}." if place is not None else f"{result.reason}"
    return {
        "status": result.status,
        "steps": result.steps,
        "final_loss": result.final_loss,
        "tokens_per_s": result.tokens_per_s,
        "seconds": result.seconds,
        "model": None if place is None else str(place),
        "summary": f"{result.status}: {result.steps} steps, {result.final_loss:.3f} nats per token at the end. {end}",
    }


def loaded(name: str, data: str) -> tuple[Any, Any]:
    """A checkpoint in float32, and its tokenizer, which the text of `data` needs."""
    from lengthen.core import UsageError
    from lengthen.hf import load

    print(f"Loading {name}.", file=sys.stderr)
    model, tokenizer = load(name, dtype="float32")
    if tokenizer is None:
        raise UsageError(f"{name} holds no tokenizer, which the text of {data!r} needs. Put its files beside the weights.")
    return model, tokenizer
