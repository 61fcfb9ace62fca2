"""The share of causal attention's scores that a pattern shows, against counting pair by pair."""

import pytest
import torch

from lengthen.bench.ideal import pairs, share
from lengthen.core import Causal, Everywhere, Layout
from lengthen.core.patterns import Pattern
from lengthen.methods.bca import BlockwiseCausal
from lengthen.methods.sinks import Sinks
from lengthen.methods.window import Window

PATTERNS = [
    Causal(),
    Everywhere(),
    Window(1),
    Window(7),
    Window(1000),
    BlockwiseCausal(5),
    Causal() & (Window(6) | Sinks(4)),
]


def counted(pattern: Pattern, queries: int, keys: int) -> int:
    """One pair at a time."""
    number = lambda n: torch.tensor(n)
    return sum(bool(pattern(number(i), number(j))) for i in range(keys - queries, keys) for j in range(keys))


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize(("queries", "keys"), [(23, 23), (1, 23), (5, 23), (1, 1)])
def test_visible_pairs_are_counted_exactly(pattern, queries, keys):
    assert pairs(pattern, Layout.plain(queries, keys)) == counted(pattern, queries, keys)


class Even(Pattern):
    """A pattern that knows no intervals."""

    causal = True

    def __call__(self, i, j):
        return (j <= i) & ((i - j) % 2 == 0)


def test_a_pattern_without_intervals_is_counted_too():
    assert pairs(Even(), Layout.plain(9)) == counted(Even(), 9, 9) == 25


def test_the_share_of_a_window_is_its_formula():
    length, window = 16384, 512
    expected = (window * length - window * (window - 1) / 2) / (length * (length + 1) / 2)
    assert share(Window(window), Layout.plain(length)) == pytest.approx(expected)
    assert share(Causal(), Layout.plain(64)) == 1 and share(Causal(), Layout.plain(1, 64)) == 1
    assert share(Window(16), Layout.plain(1, 64)) == 0.25
