"""A progress bar for the terminal: loss, tokens per second, time left."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from .loop import Report


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

        def report(step: int, loss: float, tokens_per_s: float, seconds_left: float) -> None:
            left = timedelta(seconds=round(seconds_left))
            bar.update(task, completed=step, loss=f"{loss:.3f}", rate=f"{tokens_per_s:,.0f}", left=str(left))

        yield report
