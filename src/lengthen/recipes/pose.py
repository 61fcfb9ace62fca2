"""Is PoSE as good as tuning at full length? (Zhu et al. 2023, arXiv:2309.10400, tables 1 and 4, in miniature.)

A small model of ours is trained at L, given frequencies for 4 L, and tuned from the same weights in four ways: rows of 4 L, as
many rows per step; rows of 4 L, as many tokens per step; PoSE's rows of L; randomised positions in rows of L. All are read on
the same last tokens of the same held-out documents.

Run: python -m lengthen.recipes.pose --out runs/pose
"""

import argparse
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lengthen.data import Batches, Prepared, prepare
from lengthen.evaluate import evaluate
from lengthen.evaluate.statistics import paired_bootstrap
from lengthen.models import Decoder, make_decoder, preset
from lengthen.models.store import load_decoder, save_decoder
from lengthen.train import Report, TrainConfig, train
from lengthen.tune import FullLength, Scattered, SkipWise, TuneConfig, Way, tune, with_specs

from .files import read_json, write_json

PROTOCOL = "fixed_targets"


@dataclass(frozen=True)
class PoseConfig:
    """Settings of the experiment."""

    length: int = 256
    """L, tokens."""
    times: int = 4
    """The target over L."""
    specs: tuple[str, ...] = ("pi:factor=4", "yarn:factor=4,fast=8")
    """Frequencies for the target; the paper's own are the first. `fast` 8 suits so short an L: 32 turns within 256 are few."""
    seeds: tuple[int, ...] = (0, 1)
    """One base and one tuning run per arm and seed."""
    data: str = "demo"
    """See `lengthen.data.load_corpus`."""
    preset: str = "tiny"
    """See `lengthen.models.PRESETS`."""
    base_steps: int = 2000
    """Training steps at L."""
    base_batch: int = 16
    """Rows of L tokens per training step."""
    base_lr: float = 4e-3
    """Peak learning rate at L."""
    steps: int = 400
    """Tuning steps."""
    batch: int = 8
    """Rows per tuning step."""
    lr: float = 1e-3
    """Peak learning rate of tuning."""
    chunks: int = 2
    """Of PoSE."""
    documents: int = 32
    """Held-out documents read at most."""
    targets: int = 64
    """Tokens scored per document, its last ones."""

    @property
    def target(self) -> int:
        return self.times * self.length


def arms(config: PoseConfig) -> dict[str, tuple[Way, int] | None]:
    """By name, the way and its rows per step; None: the given frequencies without tuning."""
    ends = {"trained": config.length, "target": config.target}
    return {
        "untuned": None,
        "full length": (FullLength(**ends), config.batch),
        "full length, equal tokens": (FullLength(**ends), config.batch // config.times),
        "PoSE": (SkipWise(**ends, chunks=config.chunks), config.batch),
        "randomised": (Scattered(**ends), config.batch),
    }


def pose(config: PoseConfig, folder: Path, tell: Report | None = None) -> dict[str, Any]:
    """Runs what is not done yet; writes `folder`/result.json and table.md, and returns the former."""
    data = prepare(config.data, "bytes", min_held_tokens=config.target + 1)
    found: dict[str, Any] = {"config": asdict(config), "arms": {}}
    for seed in config.seeds:
        base = _base(config, data, seed, folder / f"base-{seed}", tell)
        found["arms"].setdefault("rope, untuned", {})[seed] = _read(base, config, data)
        for spec in config.specs:
            for name, way in arms(config).items():
                place = folder / f"{spec}-{name}-{seed}".replace(" ", "_").replace(",", "")
                nats = _arm(config, data, base, spec, way, seed, place, tell)
                found["arms"].setdefault(f"{spec}, {name}", {})[seed] = nats
    write_json(folder / "result.json", found)
    (folder / "table.md").write_text(table(config, found["arms"]), encoding="utf-8")
    return found


def _base(config: PoseConfig, data: Prepared, seed: int, folder: Path, tell: Report | None) -> Decoder:
    if not (folder / "model").exists():
        model = make_decoder(preset(config.preset, vocab=data.tokenizer.vocab), "rope", config.length, seed)
        batches = Batches(data.train, config.length, config.base_batch, seed, packing="cut")
        training = TrainConfig(config.base_steps, lr=config.base_lr, seed=seed, log_every=50)
        result = train(model, batches, training, folder, resume=True, progress=tell)
        if result.status == "stopped":
            raise KeyboardInterrupt
        save_decoder(folder / "model", model, ["rope"], config.length, seed)
    return load_decoder(folder / "model")


def _arm(config, data, base: Decoder, spec: str, way: tuple[Way, int] | None, seed: int, folder: Path, tell) -> dict[int, Any]:
    """Nats per document at each length."""
    if (folder / "nats.json").exists():
        return {int(n): found for n, found in read_json(folder / "nats.json").items()}
    model = with_specs(base, spec, config.length)
    if way is not None:
        training = TrainConfig(config.steps, lr=config.lr, seed=seed, log_every=50)
        tuned = tune(model, data.train, way[0], TuneConfig(training, way[1]), folder, resume=True, progress=tell)
        if tuned.result.status == "stopped":
            raise KeyboardInterrupt
    nats = _read(model, config, data)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "nats.json", nats)
    return nats


def _read(model: Decoder, config: PoseConfig, data: Prepared) -> dict[int, Any]:
    lengths = [config.length * n for n in (1, 2, config.times) if n <= config.times]
    read = evaluate(
        model.eval(),
        [d.ids for d in data.held],
        train_length=config.length,
        lengths=sorted(set(lengths)),
        protocols=(PROTOCOL,),
        controls=("none",),
        targets=config.targets,
        most_documents=config.documents,
    )
    return {n: (read.reading(PROTOCOL, n).nats / read.reading(PROTOCOL, n).tokens).tolist() for n in read.lengths}


def table(config: PoseConfig, found: Mapping[str, Mapping[int, Mapping[int, Any]]]) -> str:
    """Nats per token at each length; at the target also the difference to full length, with its 95% interval."""
    lengths = sorted(next(iter(next(iter(found.values())).values())))
    head = ["arm", *(f"at {n}" for n in lengths), f"minus full length, at {lengths[-1]}"]
    rows = [head, ["---"] + ["---:"] * (len(head) - 1)]
    for name, by_seed in found.items():
        means = [f"{np.mean([np.mean(nats[n]) for nats in by_seed.values()]):.3f}" for n in lengths]
        rows.append([name, *means, _difference(name, found, lengths[-1])])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def _difference(name: str, found: Mapping[str, Mapping[int, Mapping[int, Any]]], length: int) -> str:
    spec = name.split(", ")[0]
    yardstick = f"{spec}, full length"
    if name == yardstick or yardstick not in found:
        return ""
    ours, theirs = (np.array([nats[length] for nats in found[n].values()]) for n in (name, yardstick))
    interval = paired_bootstrap(ours, theirs)
    return f"{interval.value:+.3f} ({interval.low:+.3f} to {interval.high:+.3f})"


def main() -> None:
    """The command."""
    ask = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    ask.add_argument("--out", type=Path, default=Path("runs/pose"))
    ask.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    ask.add_argument("--specs", nargs="+", default=list(PoseConfig.specs))
    ask.add_argument("--steps", type=int, default=PoseConfig.steps)
    given = ask.parse_args()
    config = PoseConfig(seeds=tuple(given.seeds), specs=tuple(given.specs), steps=given.steps)
    found = pose(config, given.out, lambda step, loss, rate, left: print(f"{step} {loss:.3f} {rate:,.0f} tokens/s", flush=True))
    print(table(config, found["arms"]))


if __name__ == "__main__":
    main()
