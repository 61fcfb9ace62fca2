"""A bar for the terminal: what is read, how much of everything, time left. Elsewhere, a line now and then."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lengthen.train.progress import Lines

from .amounts import spoken

if TYPE_CHECKING:
    from rich.console import Console

Tell = Callable[[str, float, float | None], None]
"""(what is read, share of everything that is done, expected seconds left or None)."""


@contextmanager
def bar(console: "Console | None" = None) -> Iterator[Tell]:
    """Yields what `advise(progress=...)` calls; the bar stays on the screen when the block ends."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f}%"), TimeElapsedColumn()]
    with Progress(*columns, TextColumn("{task.fields[left]} left"), console=console) as shown:
        task = shown.add_task("loading", total=1.0, left="?")
        lines = None if shown.console.is_terminal else Lines()

        def tell(what: str, share: float, left: float | None) -> None:
            due = "?" if left is None else spoken(left)
            shown.update(task, description=what, completed=share, left=due)
            if lines:
                lines(f"{what}: {share:.0%} of everything, {due} left")

        yield tell
