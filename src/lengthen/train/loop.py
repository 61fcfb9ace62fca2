"""The training loop: one process or many, CPU or GPU, on Accelerate; killed anywhere, it resumes to the same numbers."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from torch import Tensor, nn

from lengthen.core import UsageError

from .checkpoint import Checkpoints, data_facts
from .config import TrainConfig
from .history import History
from .interrupt import Interrupt
from .ledger import Ledger
from .memory import PeakMemory
from .objective import IGNORED, Objective
from .optim import learning_rate, make_optimizer, set_learning_rate

Report = Callable[[int, float, float, float], None]
"""Called with (steps done, loss in nats per token, tokens per second, seconds left)."""


class Batch(Protocol):
    """One step's data, tensors or arrays. An attribute `extra` may hold more that the objective takes, by keyword: what has a
    row for each of the ids is divided with them, the rest is handed on."""

    ids: Any
    """int64 [B, T]."""
    targets: Any
    """int64 [B, T]; -100 is not scored."""
    doc: Any
    """int64 [B, T], or None where no row holds two documents."""


class Source(Protocol):
    """Training data as a pure function of the step."""

    tokens_per_step: int

    def at(self, step: int) -> Batch:
        """The whole batch of step 0, 1, ...; processes take every n-th row."""


@dataclass(frozen=True)
class TrainResult:
    """How a run ended."""

    status: Literal["done", "failed", "stopped"]
    reason: str | None
    """Why it is not done, a sentence."""
    steps: int
    """Steps done; where the run failed, the step that was bad."""
    final_loss: float
    """Nats per token, mean over the last `log_every` steps; nan before the first line of train.jsonl."""
    tokens_per_s: float
    """Median over the lines of train.jsonl but the first."""
    peak_mib: float
    """What this sitting needed at most: see `PeakMemory`."""
    seconds: float
    """Wall time, over all sittings."""


def train(
    model: nn.Module,
    batches: Source,
    config: TrainConfig,
    folder: str | Path,
    *,
    objective: nn.Module | None = None,
    facts: Mapping[str, Any] | None = None,
    resume: bool = False,
    progress: Report | None = None,
) -> TrainResult:
    """Trains `model` in place on `batches.at(0)`, `batches.at(1)`, ...; writes `folder`/train.jsonl and `folder`/checkpoint.

    A loss or gradient that is not finite, or a loss that stays too high (`TrainConfig.diverged_ratio`), ends the run with
    the status 'failed'; the checkpoint is then of the last good state. SIGINT, SIGTERM and a KeyboardInterrupt out of
    `progress` end it with 'stopped', after a checkpoint. With `resume`, the run goes on from its checkpoint to the numbers
    it would have had: bit by bit on the same CPU, thread count and number of processes, and on a GPU as far as its kernels
    repeat themselves. Where there is no checkpoint, it begins.

    objective: (ids, targets, doc, **extra) -> nats summed over the targets, on the parameters of `model`, with its size of
    vocabulary in `vocab`; None: `Objective`, for a Decoder. facts: what else decides the run, compared when it resumes.

    The batch of a step is divided by rows among the processes of `accelerate launch`; only the first of them writes.

    Raises UsageError before anything is touched: a folder that holds a run (without `resume`), other settings, data or
    model than the run to be resumed, tokens outside the vocabulary, fewer rows than processes. Raises LengthenError where
    a checkpoint cannot be written; the one before it stays whole.
    """
    folder, first = Path(folder), batches.at(0)
    objective = objective if objective is not None else Objective(model)
    seen = data_facts(batches.tokens_per_step, first.ids, first.targets)
    checkpoints = Checkpoints(folder / "checkpoint", config, seen, facts)
    found, history = checkpoints.exists(), folder / "train.jsonl"
    if not resume and (found or history.exists()):
        raise UsageError(f"{folder} already holds a training run. Resume it (resume=True, --resume) or give another folder.")
    accelerator = Accelerator(
        mixed_precision="no",  # the config decides; Accelerate's own would be one setting for the life of the process
        kwargs_handlers=[DistributedDataParallelKwargs(static_graph=True)],  # some layers may leave parameters unused
    )
    _require_fitting(first, objective.vocab, accelerator.num_processes, config.accumulate)
    memory = PeakMemory(accelerator.device)
    model.to(accelerator.device)
    optimizer = make_optimizer(model, config)
    ledger, size = checkpoints.read(model, optimizer) if found else (Ledger(), 0)
    accelerator.wait_for_everyone()
    was_training = model.training
    devices = [accelerator.device] if accelerator.device.type == "cuda" else []
    with torch.random.fork_rng(devices), Interrupt() as interrupt, History(history, size, accelerator.is_main_process) as lines:
        model.train()
        run = _Run(accelerator, model, objective, optimizer, batches, config, checkpoints, lines, ledger, interrupt, progress)
        try:
            status, reason = run.go(fresh=not found)
        finally:
            model.train(was_training)
    return TrainResult(status, reason, ledger.step, ledger.final_loss, ledger.tokens_per_s, memory.mib(), ledger.seconds)


def _require_fitting(first: Batch, vocab: int, processes: int, accumulate: int) -> None:
    ids, rows = torch.as_tensor(first.ids), len(first.ids)
    if int(ids.min()) < 0 or int(ids.max()) >= vocab:
        raise UsageError(
            f"The data holds tokens from {int(ids.min())} to {int(ids.max())}, and the model has a vocabulary of {vocab}. "
            "Build the model for the tokenizer's vocabulary."
        )
    if rows < processes:
        raise UsageError(f"{rows} rows per batch do not feed {processes} processes; use a batch of at least {processes}.")
    if rows < processes * accumulate:
        raise UsageError(
            f"{rows} rows per batch cannot be read in {accumulate} pieces by {processes} processes; use a batch of at least "
            f"{processes * accumulate}, or fewer pieces."
        )


class _Run:
    """One sitting of a run."""

    def __init__(
        self,
        accelerator: Accelerator,
        model: nn.Module,
        objective: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: Source,
        config: TrainConfig,
        checkpoints: Checkpoints,
        lines: History,
        ledger: Ledger,
        interrupt: Interrupt,
        progress: Report | None,
    ):
        self.accelerator, self.model, self.optimizer, self.batches = accelerator, model, optimizer, batches
        self.config, self.checkpoints, self.lines, self.ledger = config, checkpoints, lines, ledger
        self.interrupt, self.progress = interrupt, progress
        self.vocab, self.objective = objective.vocab, accelerator.prepare_model(objective)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.clip = config.clip if config.clip is not None else math.inf
        self.rank, self.processes = accelerator.process_index, accelerator.num_processes
        self.open: list[tuple[Tensor, Tensor]] = []
        """Loss and gradient norm of steps that the device was not yet asked for."""

    def go(self, fresh: bool) -> tuple[str, str | None]:
        """Runs to an end; returns its status and reason."""
        begun, before = time.perf_counter(), self.ledger.seconds
        if fresh:
            self._checkpoint()
        started = time.perf_counter()
        for step in range(self.ledger.step, self.config.steps):
            self.open.append(self._step(step))
            if not self._due(step + 1):
                continue
            reason, stop = self._collect()
            now = time.perf_counter()
            self.ledger.busy += now - started
            self.ledger.seconds = before + now - begun
            if reason is not None:
                return "failed", reason
            stop |= self._report(step)
            if stop or self._checkpoint_due(step + 1):
                self._checkpoint()
            if stop and step + 1 < self.config.steps:
                return "stopped", f"Interrupted after step {step + 1} of {self.config.steps}; resume to go on."
            started = time.perf_counter()
        return "done", None

    def _step(self, step: int) -> tuple[Tensor, Tensor]:
        """One optimiser step on this process's rows of the batch. Loss and gradient norm stay on the device."""
        _reseed(self.accelerator.device, self.config.seed, step, self.rank)
        batch = self.batches.at(step)
        targets = torch.as_tensor(batch.targets)
        scored = max(int((targets != IGNORED).sum()), 1)
        set_learning_rate(self.optimizer, learning_rate(self.config, step))
        losses = [self._backward(piece, self.processes / scored) for piece in self._pieces(batch, targets)]
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return torch.stack(losses).sum(), norm

    def _backward(self, given: Mapping[str, Any], share: float) -> Tensor:
        """Adds the gradient of some rows; returns their part of the loss."""
        with torch.autocast(self.accelerator.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
            nats = self.objective(**given)
        loss = nats * share
        self.accelerator.backward(loss)
        return loss.detach()

    def _pieces(self, batch: Batch, targets: Tensor) -> Iterator[dict[str, Any]]:
        """What the objective takes, a piece of this process's rows at a time."""
        given = {"ids": batch.ids, "targets": targets, "doc": batch.doc, **getattr(batch, "extra", {})}
        mine = {name: self._rows(x) if _has_rows(x, len(targets)) else x for name, x in given.items()}
        size = len(mine["ids"])
        for n in range(self.config.accumulate):
            cut = slice(n * size // self.config.accumulate, (n + 1) * size // self.config.accumulate)
            yield {name: x[cut] if _has_rows(x, size) else x for name, x in mine.items()}

    def _rows(self, x: Any) -> Tensor:
        return torch.as_tensor(x)[self.rank :: self.processes].to(self.accelerator.device)

    def _due(self, done: int) -> bool:
        """Whether to wait for the device: for a line, a checkpoint, the end, or because someone asked to stop."""
        if self.interrupt.requested and self.processes == 1:
            return True
        return done % self.config.log_every == 0 or done % self.config.checkpoint_every == 0 or done == self.config.steps

    def _checkpoint_due(self, done: int) -> bool:
        """Never while the loss diverges: the last good state stays."""
        return self.ledger.diverging == 0 and (done % self.config.checkpoint_every == 0 or done == self.config.steps)

    def _collect(self) -> tuple[str | None, bool]:
        """Books the open steps. Returns why the run must end, and whether any process was asked to stop."""
        asked = torch.tensor([[float(self.interrupt.requested)] * 2], device=self.accelerator.device)
        open_steps = torch.stack([torch.stack(pair) for pair in self.open]).float()
        *steps, (stop, _) = self.accelerator.reduce(torch.cat([open_steps, asked]), "mean").tolist()
        self.open = []
        for loss, norm in steps:
            reason = self.ledger.record(loss, norm, self.config, self.vocab)
            if reason is not None:
                return reason, False
        return None, stop > 0

    def _report(self, step: int) -> bool:
        """Closes a line of train.jsonl where one is due. Whether `progress` asked to stop."""
        done = step + 1
        if done % self.config.log_every and done != self.config.steps:
            return False
        line = self.ledger.line(learning_rate(self.config, step), self.batches.tokens_per_step)
        self.lines.append(line)
        if self.progress is None:
            return False
        rate = statistics.median(self.ledger.rates[-20:])
        left = (self.config.steps - done) * self.batches.tokens_per_step / rate
        try:
            self.progress(done, line["loss"], line["tokens_per_s"], left)
        except KeyboardInterrupt:
            return True
        return False

    def _checkpoint(self) -> None:
        if self.accelerator.is_main_process:
            self.checkpoints.write(self.model, self.optimizer, self.ledger, self.lines.sync())
        self.accelerator.wait_for_everyone()


def _has_rows(x: Any, rows: int) -> bool:
    return isinstance(x, Tensor | np.ndarray) and x.ndim > 0 and len(x) == rows


def _reseed(device: torch.device, seed: int, step: int, rank: int) -> None:
    """What dropout and random positions start from at a step, so that a resumed run draws the same.

    `torch.manual_seed` would visit every kind of device there is: ten times as slow.
    """
    number = int(np.random.SeedSequence((seed, step, rank)).generate_state(1, np.uint64)[0])
    torch.default_generator.manual_seed(number)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(number)
