"""The order of trials and the budget, by a clock of the tests' own."""

from dataclasses import dataclass

from lengthen.advise.candidates import Candidate
from lengthen.advise.reading import Reading
from lengthen.advise.schedule import Schedule
from lengthen.advise.trial import Trial

SPECS = ("a", "b", "c")


def reading(seconds: float) -> Reading:
    return Reading((1.0,), (1,), (), 0, 1.0, 1.0, seconds)


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def run(passages, takes, budget=None, order=lambda trials: SPECS, held=(), failing=(), specs=SPECS):
    """What was tried, and the schedule at its end. Every trial takes its spec's seconds."""
    clock = Clock()
    deadline = None if budget is None else clock.now + budget
    schedule = Schedule([Candidate(s, "no") for s in specs], passages, order, clock, deadline, list(held))
    made = []
    for candidate, number in schedule:
        made.append(f"{candidate.spec}{number}")
        clock.now += takes[candidate.spec]
        failure = "no" if candidate.spec in failing else None
        given = None if failure else reading(takes[candidate.spec])
        schedule.trials.append(Trial(candidate, number, given, None, failure))
    return made, schedule


def test_every_candidate_reads_the_first_passage_before_any_reads_the_second():
    made, schedule = run(2, dict.fromkeys(SPECS, 10.0))
    assert made == ["a0", "b0", "c0", "a1", "b1", "c1"] and not schedule.stopped and schedule.left() == 0


def test_later_rounds_go_by_rank():
    made, _ = run(2, dict.fromkeys(SPECS, 10.0), order=lambda trials: ["c", "a", "b"])
    assert made == ["a0", "b0", "c0", "c1", "a1", "b1"]


def test_what_failed_is_not_tried_again():
    made, schedule = run(2, dict.fromkeys(SPECS, 10.0), failing="b")
    assert made == ["a0", "b0", "c0", "a1", "c1"] and schedule.left() == 0


def test_no_trial_begins_that_would_end_past_the_budget():
    """Four of 10 s fit into 45 s; the fifth would end at 50."""
    made, schedule = run(2, dict.fromkeys(SPECS, 10.0), budget=45)
    assert made == ["a0", "b0", "c0", "a1"] and schedule.stopped and schedule.left() == 2
    assert schedule.clock() <= schedule.deadline


def test_a_candidate_is_expected_to_take_as_long_as_it_took():
    """After 10 + 40 + 10 s and 10 s for a1, 100 s end too soon for b1, which takes 40."""
    made, schedule = run(2, {"a": 10.0, "b": 40.0, "c": 10.0}, budget=100)
    assert made == ["a0", "b0", "c0", "a1"] and schedule.stopped


def test_one_reading_is_made_however_small_the_budget():
    made, schedule = run(2, dict.fromkeys(SPECS, 10.0), budget=1)
    assert made == ["a0"] and schedule.stopped


def test_refusals_say_nothing_of_how_long_a_reading_takes():
    """b is refused at once; c is still expected to take the 10 s of a, which fit into 20 and not into 19."""
    takes = {"a": 10.0, "b": 0.0, "c": 10.0}
    held = [Trial(Candidate("a", "no"), 0, reading(10.0)), Trial(Candidate("b", "no"), 0, failure="refused")]
    assert run(1, takes, budget=10, held=held)[0] == ["c0"]
    assert run(1, takes, budget=9, held=held)[0] == []
    assert run(1, takes, budget=20, failing="b")[0] == ["a0", "b0", "c0"]


def test_it_goes_on_behind_what_is_held():
    held = [Trial(Candidate("a", "no"), 0, reading(10.0)), Trial(Candidate("b", "no"), 0, reading(30.0))]
    made, _ = run(2, dict.fromkeys(SPECS, 10.0), held=held)
    assert made == ["c0", "a1", "b1", "c1"]
    made, _ = run(2, dict.fromkeys(SPECS, 10.0), held=held, budget=15)
    assert made == [], "the mean of what was read is 20 s"


def test_time_left_is_the_rest_at_the_mean_or_the_deadline():
    made, schedule = run(1, {"a": 10.0, "b": 30.0, "c": 20.0}, budget=45)
    assert made == ["a0", "b0"] and schedule.left() == 1
    assert schedule.seconds_left() == 5, "the mean of 10 and 30 s would be 20, and 5 s are left"
    held = [Trial(Candidate("a", "no"), 0, reading(10.0)), Trial(Candidate("b", "no"), 0, reading(30.0))]
    assert run(1, {}, budget=15, held=held)[1].seconds_left() == 15
    _, done = run(1, dict.fromkeys(SPECS, 10.0))
    assert done.seconds_left() == 0
