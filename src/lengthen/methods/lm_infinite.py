"""LM-Infinite: a window and the first tokens, at distances that stop growing (Han et al. 2023, arXiv:2308.16137)."""

from lengthen.core import Beyond, Branch, Scheme, UsageError, method
from lengthen.core.errors import require_count
from lengthen.core.patterns import Both, Either, Pattern

from .rerope import Held
from .sinks import Sinks
from .window import Window


@method(
    "lm_infinite",
    family="remapping",
    paper="2308.16137",
    modifies=True,
    variants=({"sinks": 2, "window": 5, "limit": 9}, {"sinks": 3, "limit": 7}),
)
def lm_infinite(train_length: int, *, sinks: int = 10, window: int | None = None, limit: int | None = None) -> Scheme:
    """A query sees a window and the first tokens; distances are min(i - j, limit) (section 4, the Lambda-shaped mask).

    sinks: first tokens that stay visible (the paper: 10 to 100).
    window: visible tokens up to the query, the query included; `limit` by default.
    limit: largest distance, in tokens; the training length by default, as in the paper.
    """
    limit = limit if limit is not None else train_length
    window = window if window is not None else limit
    for name, value in (("sinks", sinks), ("window", window), ("limit", limit)):
        require_count("lm_infinite", name, value, "tokens")
    if window > limit:
        raise UsageError(f"lm_infinite caps distances at {limit}, so its window is at most that, got {window}. Raise 'limit'.")
    far = Branch(Both(Beyond(limit), Sinks(sinks)), Held(limit), Held(0), relative=True)
    return Scheme(branches=(Branch(_near(sinks, window, limit), relative=True), far))


def _near(sinks: int, window: int, limit: int) -> Pattern:
    """What is seen at its true distance."""
    return Window(limit) if window == limit else Both(Window(limit), Either(Window(window), Sinks(sinks)))
