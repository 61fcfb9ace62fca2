"""Jobs side by side, each in a process of its own, with one progress bar per running job."""

import os
import queue
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing import get_context
from threading import Thread
from time import sleep
from typing import Any


@dataclass(frozen=True)
class Tick:
    """What a job says of itself while it runs."""

    job: str
    phase: str
    done: int
    total: int
    note: str = ""


Report = Callable[[Tick], None]


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def run_all(work: Callable[..., Any], jobs: Sequence[tuple], side_by_side: int, show: bool) -> list[Any]:
    """`work(*job, report)` for every job, results in order. One at a time runs in this process; more get one process each.

    A job that raises gives its exception as its result, and the others go on. Processes die with this one, however it ends.
    """
    with _display(show) as report:
        if side_by_side <= 1:
            return [_attempt(lambda job=job: work(*job, report)) for job in jobs]
        context = get_context("spawn")
        ticks = context.Queue()
        setup = (os.getpid(), max(1, cores() // side_by_side), ticks)
        with ProcessPoolExecutor(side_by_side, context, _begin, setup, max_tasks_per_child=1) as pool:
            futures = [pool.submit(_relay, work, job) for job in jobs]
            try:
                _drain(futures, ticks, report)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [_attempt(f.result) for f in futures]


def _attempt(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except Exception as error:
        return error


_ticks = None
"""In a worker: where its ticks go."""


def _begin(parent: int, threads: int, ticks) -> None:
    """Sets up a worker, before it imports torch."""
    global _ticks
    _ticks = ticks
    os.environ["OMP_NUM_THREADS"] = str(threads)
    Thread(target=_follow, args=(parent,), daemon=True).start()


def _follow(parent: int) -> None:
    """Ends this process with its parent: an orphan would go on writing to a folder that a resumed run writes to."""
    while os.getppid() == parent:
        sleep(0.2)
    os._exit(1)


def _relay(work: Callable[..., Any], job: tuple) -> Any:
    import torch

    # The variable comes too late where the user's own main module has imported torch.
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    return work(*job, _ticks.put)


def _drain(futures: list[Future], ticks, report: Report) -> None:
    waiting = set(futures)
    while waiting:
        try:
            report(ticks.get(timeout=0.2))
        except queue.Empty:
            waiting -= wait(waiting, timeout=0).done


def _display(show: bool):
    """A context that yields a Report: rich bars, or nothing."""
    return Bars() if show else nullcontext(lambda tick: None)


class Bars:
    """One line per job: phase, bar, loss or count, time left."""

    def __enter__(self) -> Report:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        from lengthen.train.progress import Lines

        columns = ("{task.description}", BarColumn(), "{task.completed}/{task.total}", TextColumn("{task.fields[note]}"))
        self.progress = Progress(*columns, TimeRemainingColumn())
        self.progress.start()
        self.tasks: dict[tuple[str, str], Any] = {}
        self.lines = None if self.progress.console.is_terminal else Lines()
        return self.report

    def report(self, tick: Tick) -> None:
        key = (tick.job, tick.phase)
        if key not in self.tasks:
            self.tasks[key] = self.progress.add_task(f"{tick.job} {tick.phase}", total=tick.total, note="")
        self.progress.update(self.tasks[key], completed=tick.done, total=tick.total, note=tick.note)
        if tick.done >= tick.total:
            self.progress.stop_task(self.tasks[key])
        if self.lines:
            self.lines(
                f"{tick.job} {tick.phase}: {tick.done} of {tick.total} {tick.note}".rstrip(), last=tick.done >= tick.total
            )

    def __exit__(self, *failure: object) -> None:
        self.progress.stop()
