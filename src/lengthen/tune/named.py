"""Ways by the names that the command line has for them."""

from lengthen.core.errors import unknown

from .drope import Dropped
from .full import FullLength
from .s2 import ShiftedSparse
from .scattered import Scattered
from .skipwise import SkipWise
from .way import Way

WAYS = ("pose", "full", "s2", "randomised", "drope")


def make_way(name: str, trained: int, target: int, *, chunks: int = 2, group: int | None = None, drop_at: float = 0.0) -> Way:
    """The way of that name; settings of other ways are ignored. Raises UsageError, with near names."""
    made = {
        "pose": lambda: SkipWise(trained, target, chunks),
        "full": lambda: FullLength(trained, target),
        "s2": lambda: ShiftedSparse(trained, target, group),
        "randomised": lambda: Scattered(trained, target),
        "drope": lambda: Dropped(trained, target, drop_at),
    }
    if name not in made:
        raise unknown("way of tuning", name, WAYS)
    return made[name]()
