"""A progress bar for the terminal: loss, tokens per second, time left. Elsewhere, a line now and then."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from .loop import Report


class Lines:
    """What a bar would show, as lines on standard error: where it goes to a file, a bar shows nothing before the end."""

    def __init__(self, seconds: float = 30.0):
        self.seconds, self.last = seconds, float("-inf")

    def __call__(self, text: str, last: bool = False) -> None:
        """Prints, unless it printed less than `seconds` ago; the `last` line always."""
        now = time.monotonic()
        if last or now - self.last >= self.seconds:
            self.last = now
            print(text, file=sys.stderr, flush=True)


@contextmanager
def progress_bar(label: str, steps: int, console: "Console | None" = None) -> Iterator["Report"]:
    """Yields what `train(progress=...)` calls; the bar stays on the screen when the block ends."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}  {task.fields[rate]} tokens/s  {task.fields[left]} left"),
    ]
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(label, total=steps, loss="-", rate="-", left="-")
        lines = None if bar.console.is_terminal else Lines()

        def report(step: int, loss: float, tokens_per_s: float, seconds_left: float) -> None:
            left = timedelta(seconds=round(seconds_left))
            bar.update(task, completed=step, loss=f"{loss:.3f}", rate=f"{tokens_per_s:,.0f}", left=str(left))
            if lines:
                text = f"{label}: {step} of {steps}, loss {loss:.3f}, {tokens_per_s:,.0f} tokens/s, {left} left"
                lines(text, last=step == steps)

        yield report
