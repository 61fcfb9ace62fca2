"""The cost claim of ALiBi (Press et al. 2022, arXiv:2108.12409, section 4 and table 1): train at L instead of at 2L.

Measured, not asserted: training tokens/s and peak memory of ALiBi at L against sinusoidal at 2L, at equal tokens per step;
and sinusoidal models trained at 2L for the time that ALiBi takes at L, to compare the loss that both reach at 2L.
"""

from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
from accelerate import Accelerator

from lengthen.data import Batches
from lengthen.models import make_decoder
from lengthen.train import Objective, make_optimizer, train

from .config import CompareConfig
from .files import read_json, write_json
from .pool import Report, Tick, run_all
from .run import RunSpec, load_data

COST_PAIR = ("alibi", "sinusoidal")
ROUNDS, STEPS = 12, 4
"""Interleaved rounds, and training steps per round and side."""
MEMORY_STEPS = 10


def measure_cost(config: CompareConfig, folder: Path, show: bool) -> list[RunSpec]:
    """Measures speed and memory once (`cost.json`); returns the runs of sinusoidal at 2L for ALiBi's time at L."""
    path = folder / "cost.json"
    if not path.exists():
        sides = _sides(config)
        # Two side by side, though there is one job: each then has a process of its own, with the threads of a run.
        rates = _sound(run_all(_rates, [(config, sides)], 2, show))
        memory = [_sound(run_all(_memory, [(config, side)], 2, show)) for side in sides]
        write_json(path, _facts(config, sides, rates, memory))
    steps = read_json(path)["sinusoidal"]["steps_in_equal_time"]
    _, long = _sides(config)
    return [replace(long, seed=s, steps=steps) for s in config.seeds]


def _sound(results: list[Any]) -> Any:
    """The one result; its exception is raised."""
    if isinstance(results[0], Exception):
        raise results[0]
    return results[0]


def _sides(config: CompareConfig) -> tuple[RunSpec, RunSpec]:
    """ALiBi at L, sinusoidal at 2L: equal tokens per step where the batch is even."""
    length, rows = config.train_length, max(1, config.batch // 2)
    return (
        RunSpec("alibi", config.seeds[0], length, config.steps, config.batch),
        RunSpec("sinusoidal", config.seeds[0], 2 * length, config.steps, rows),
    )


def _facts(config: CompareConfig, sides, rates: list[list[float]], memory: list[float]) -> dict[str, Any]:
    """What cost.json holds."""
    short, long = (median(r) for r in rates)
    tokens = config.steps * sides[0].batch * sides[0].train_length
    steps = max(1, round(tokens / short * long / (sides[1].batch * sides[1].train_length)))
    row = lambda side, rate, mib: {"length": side.train_length, "batch": side.batch, "tokens_per_s": rate, "peak_mib": mib}
    return {
        "alibi": {**row(sides[0], short, memory[0]), "steps": config.steps},
        "sinusoidal": {**row(sides[1], long, memory[1]), "steps_in_equal_time": steps},
        "speed_ratio": median(a / b for a, b in zip(*rates, strict=True)),
        "memory_ratio": memory[0] / memory[1] if memory[1] else None,
        "rounds": ROUNDS,
    }


def _rates(config: CompareConfig, sides: tuple[RunSpec, ...], report: Report) -> list[list[float]]:
    """Training tokens/s of each side, taken in turn in one process: [sides, ROUNDS]."""
    data = load_data(config)
    steppers = [_Stepper(config, side, data) for side in sides]
    rates: list[list[float]] = [[] for _ in sides]
    for stepper in steppers:
        stepper.run(STEPS)
    for n in range(ROUNDS):
        for found, stepper in zip(rates, steppers, strict=True):
            found.append(stepper.run(STEPS))
        report(Tick("cost", "speed", n + 1, ROUNDS))
    return rates


class _Stepper:
    """Training steps of one side, on the device and in the precision of `lengthen.train`."""

    def __init__(self, config: CompareConfig, side: RunSpec, data):
        self.batches = Batches(data.train, side.train_length, side.batch, side.seed, packing="cut")
        self.settings, self.device = config.training(side.seed, config.steps), Accelerator().device
        model = make_decoder(config.model(data.tokenizer.vocab), side.method, side.train_length, side.seed)
        self.model = model.to(self.device).train()
        self.optimizer, self.objective, self.step = make_optimizer(self.model, self.settings), Objective(self.model), 0

    def run(self, steps: int) -> float:
        """Makes `steps` steps; returns tokens/s."""
        began = perf_counter()
        for _ in range(steps):
            batch = self.batches.at(self.step)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.precision == "bf16"):
                loss = self.objective(batch.ids.to(self.device), batch.targets.to(self.device), None)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
            self.optimizer.step()
            self.step += 1
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return steps * self.batches.tokens_per_step / (perf_counter() - began)


def _memory(config: CompareConfig, side: RunSpec, report: Report) -> float:
    """Peak memory of training beyond what the process held before, MiB: in a process of its own."""
    data = load_data(config)
    batches = Batches(data.train, side.train_length, side.batch, side.seed, packing="cut")
    model = make_decoder(config.model(data.tokenizer.vocab), side.method, side.train_length, side.seed)
    with TemporaryDirectory() as folder:
        return train(model, batches, config.training(side.seed, MEMORY_STEPS), folder).peak_mib
