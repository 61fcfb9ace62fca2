"""Contestants timed in turn, on a clock that the test moves."""

import math

import pytest

from lengthen.bench.pairs import Ratio, interleave


class FakeClock:
    """Seconds that pass only in steps."""

    def __init__(self):
        self.now, self.calls = 0.0, []

    def __call__(self) -> float:
        return self.now

    def step(self, name: str, seconds):
        """A step that takes seconds(call number), or always `seconds`."""
        count = 0

        def run() -> None:
            nonlocal count
            self.calls.append(name)
            self.now += seconds(count) if callable(seconds) else seconds
            count += 1

        return run


def test_a_machine_that_slows_down_does_not_change_the_ratio():
    clock, ends = FakeClock(), {"own": 2.0, "peer": 1.0}
    # Everything takes 1.3 times longer with every call: whoever were measured second as a block would look slow.
    steps = {name: clock.step(name, lambda n, base=base: base * 1.3**n) for name, base in ends.items()}
    found = interleave(steps, rounds=6, clock=clock)
    ratio = Ratio.of(found["own"], found["peer"])
    assert ratio.ratio == pytest.approx(2.0) and ratio.low == pytest.approx(2.0) and ratio.high == pytest.approx(2.0)
    assert ratio.rounds == 6


def test_the_ratio_is_the_median_of_pairs_and_not_the_ratio_of_medians():
    ratio = Ratio.of([1.0, 8.0, 30.0, 4.0, 6.0], [1.0, 2.0, 10.0, 1.0, 3.0])  # pairs: 1, 4, 3, 4, 2
    assert (ratio.low, ratio.ratio, ratio.high) == (2.0, 3.0, 4.0)
    assert (ratio.seconds, ratio.peer_seconds) == (6.0, 2.0)


def test_rounds_alternate_their_order():
    clock = FakeClock()
    interleave({"a": clock.step("a", 10.0), "b": clock.step("b", 10.0)}, rounds=3, clock=clock)
    assert clock.calls == ["a", "b", "a", "b", "b", "a", "a", "b"]  # a warm-up, then three rounds


def test_short_steps_are_repeated_within_their_round():
    clock = FakeClock()
    found = interleave({"a": clock.step("a", 1e-3)}, rounds=2, shortest=5e-3, clock=clock)
    assert clock.calls.count("a") == 2 + 2 * 5  # two unmeasured calls, then five per round
    assert found["a"] == pytest.approx([1e-3, 1e-3])


def test_the_budget_ends_the_rounds_but_not_before_three():
    clock = FakeClock()
    steps = {"a": clock.step("a", 1.0), "b": clock.step("b", 1.0)}
    assert len(interleave(steps, rounds=50, budget=0.5, clock=clock)["a"]) == 3
    # Warm-up takes 2 s and a round 2 s: rounds begin at 2, 4, 6, 8 and not at 10.
    assert len(interleave(steps, rounds=50, budget=10.0, clock=clock)["a"]) == 4
    assert len(interleave(steps, rounds=7, budget=math.inf, clock=clock)["a"]) == 7


def test_a_device_that_runs_behind_is_waited_for_before_each_reading():
    clock, open_work = FakeClock(), []

    def wait() -> None:
        clock.now += sum(open_work)
        open_work.clear()

    found = interleave({"a": lambda: open_work.append(2.0)}, rounds=2, clock=clock, wait=wait)
    assert found["a"] == [2.0, 2.0]
