"""Rank, losses and intervals of constructed numbers."""

import math

import numpy as np
import pytest

from lengthen.advise.advice import Advice
from lengthen.advise.candidates import AS_IS, Candidate
from lengthen.advise.ranking import BINS, PASSAGES, STRETCHES, apart, rank, units
from lengthen.advise.reading import Answer, Reading
from lengthen.advise.trial import Facts, Trial

TRAINED, TARGET = 640, 1280
SKIPPED = 4
"""Bins at the start of which nothing is scored."""


def reading(inside, beyond, answers=(), seed=0, noise=0.0, decode=1.0) -> Reading:
    """Ten tokens in each bin, with these nats per token and noise that all methods of one seed share."""
    shared = np.random.default_rng(seed).normal(0, 1, 2 * BINS)
    mean = np.repeat([inside, beyond], BINS) + shared + noise * np.random.default_rng(99).normal(0, 1, 2 * BINS)
    tokens = [0] * SKIPPED + [10] * (2 * BINS - SKIPPED)
    return Reading(tuple((mean * tokens).tolist()), tuple(tokens), tuple(answers), 1000, decode, 1.0, 5.0)


def trial(spec, number=0, sees=TARGET, failure=None, **given) -> Trial:
    facts = Facts(sees, (), None)
    made = None if failure else reading(**{"inside": 3.0, "beyond": 3.0, "seed": number, **given})
    return Trial(Candidate(spec, "no"), number, made, facts, failure)


def advice(trials, passages=1, **given) -> Advice:
    wanted = tuple({t.candidate.spec: t.candidate for t in trials}.values())
    names = tuple(f"text {n}" for n in range(passages))
    return Advice("a model", TRAINED, TARGET, tuple(trials), wanted, names, **{"stopped": None, **given})


def test_rank_is_by_the_mean_of_inside_and_beyond():
    rows = rank(
        [trial(AS_IS, beyond=6.0), trial("pi", inside=3.5, beyond=3.1), trial("yarn", inside=3.1, beyond=3.2)], TRAINED, TARGET
    )
    assert [r.candidate.spec for r in rows] == ["yarn", "pi", AS_IS]
    base = reading(0.0, 0.0)
    own_inside = sum(base.nats[:BINS]) / sum(base.tokens[:BINS])
    own_beyond = sum(base.nats[BINS:]) / sum(base.tokens[BINS:])
    assert math.isclose(rows[0].inside, 3.1 + own_inside) and math.isclose(rows[0].beyond, 3.2 + own_beyond)
    assert math.isclose(rows[0].score, (rows[0].inside + rows[0].beyond) / 2)


def test_what_all_methods_share_cancels_in_paired_differences():
    """The text's own ups and downs have a deviation of 1 nat; a constant difference still has an interval of no width."""
    rows = rank([trial(AS_IS), trial("yarn", inside=3.1, beyond=3.2)], TRAINED, TARGET)
    lost = rows[1].lost
    assert math.isclose(lost.value, 0.1) and math.isclose(lost.low, 0.1) and math.isclose(lost.high, 0.1)
    behind = rows[1].behind
    assert math.isclose(behind.value, 0.15) and behind.high - behind.low < 0.02, "bins per stretch differ by one at most"
    assert rows[0].behind is None


def test_units_have_the_score_for_their_mean():
    some = [reading(2.0, 5.0, seed=n) for n in range(3)]
    tokens = [np.array(r.tokens) for r in some]
    nats = [np.array(r.nats) for r in some]
    side = lambda part: sum(n[part].sum() for n in nats) / sum(t[part].sum() for t in tokens)
    assert math.isclose(units(some).mean(), (side(slice(0, BINS)) + side(slice(BINS, None))) / 2)
    assert len(units(some)) == 3 * STRETCHES
    many = [reading(2.0, 5.0, seed=n) for n in range(PASSAGES)]
    assert len(units(many)) == PASSAGES


def test_the_interval_is_that_of_the_mean_over_stretches():
    """Against the normal interval of the mean of the units' differences, which 16 units and 2000 draws follow closely."""
    a, b = [reading(3.0, 3.0)], [reading(3.0, 3.0, noise=0.5)]
    found, differences = apart(b, a), units(b) - units(a)
    error = differences.std(ddof=1) / math.sqrt(len(differences))
    assert math.isclose(found.value, differences.mean(), rel_tol=1e-12)
    assert math.isclose(found.high - found.low, 2 * 2.13 * error, rel_tol=0.1), "2.13 is the t quantile of 15 degrees"


def test_rows_stand_on_the_passages_that_all_have_read():
    trials = [trial(AS_IS), trial("yarn"), trial("pi"), trial("yarn", 1, beyond=50.0)]
    rows = {r.candidate.spec: r for r in rank(trials, TRAINED, TARGET)}
    assert rows["yarn"].passages == 2 and math.isclose(rows["yarn"].score, rows["pi"].score)
    found = advice(trials, passages=2)
    assert found.common == 1 and any("All methods have read 1 of 2 passages" in s for s in found.sentences())


def test_a_method_that_fails_anywhere_is_not_ranked():
    trials = [trial(AS_IS), trial("yarn"), trial("yarn", 1, failure="out of memory: 3 GiB")]
    found = advice(trials)
    assert [r.candidate.spec for r in found.rows] == [AS_IS] and found.failures == {"yarn": "out of memory: 3 GiB"}


def test_needles_inside_and_beyond_the_old_window_are_counted_apart():
    answers = [Answer(TRAINED, 0.5, True), Answer(TRAINED + 1, 1.5, False), Answer(TRAINED + 2, 0.5, True)]
    (row,) = rank([trial(AS_IS, answers=answers)], TRAINED, TARGET)
    assert (row.near.right, row.near.asked, row.near.nats) == (1, 1, 0.5)
    assert (row.far.right, row.far.asked, row.far.nats) == (1, 2, 1.0)


def test_buckets_are_quarters_of_the_trained_length():
    (row,) = rank([trial(AS_IS, inside=3.0, beyond=4.0)], TRAINED, TARGET)
    assert [(b.start, b.stop) for b in row.buckets] == [(160 * n, 160 * (n + 1)) for n in range(8)]
    base = reading(0.0, 0.0)
    assert math.isclose(row.buckets[-1].nats, 4.0 + np.mean(base.nats[-16:]) / 10)


def test_what_hides_far_tokens_is_ranked_and_not_recommended():
    found = advice([trial(AS_IS, beyond=9.0), trial("window", sees=TRAINED, beyond=2.0), trial("yarn", beyond=2.5)])
    assert found.rows[0].candidate.spec == "window" and found.recommended().candidate.spec == "yarn"
    assert found.line() == "lengthen extend 'a model' --method yarn --factor 2 --out DIR"
    assert any("blind beyond their window: window" in s for s in found.sentences())
    assert any(s.startswith("yarn is ahead of none by 3.2500 nats per token") for s in found.sentences())


@pytest.mark.parametrize(
    ("gap", "noise", "said"), [(0.2, 0.0, "they can be told apart"), (0.01, 3.0, "they cannot be told apart")]
)
def test_it_says_whether_first_and_second_can_be_told_apart(gap, noise, said):
    found = advice([trial(AS_IS, beyond=9.0), trial("yarn"), trial("ntk", inside=3.0 + gap, beyond=3.0 + gap, noise=noise)])
    best = found.recommended().candidate.spec
    other = {"yarn": "ntk", "ntk": "yarn"}[best]
    assert any(s.startswith(f"{best} is ahead of {other}") and said in s for s in found.sentences())


def test_it_says_when_another_method_finds_more():
    one = [Answer(TRAINED + n, 1.0, False) for n in range(1, 7)]
    two = [Answer(TRAINED + n, 1.0, n > 2) for n in range(1, 7)]
    found = advice([trial(AS_IS, beyond=9.0, answers=one), trial("yarn", answers=one), trial("ntk", beyond=3.1, answers=two)])
    assert any(s.startswith("ntk answers more questions") and "4 of 6 against 0" in s for s in found.sentences())


def test_a_checkpoint_that_holds_as_it_is_needs_no_command():
    found = advice([trial(AS_IS), trial("yarn", inside=3.2)])
    assert found.recommended().candidate.spec == AS_IS and found.line() is None
    assert any("nothing has to be changed" in s for s in found.sentences())


def test_a_factor_in_the_spec_goes_with_a_length():
    found = advice([trial(AS_IS, beyond=9.0), trial("ntk:factor=3")])
    assert found.line() == f"lengthen extend 'a model' --method ntk:factor=3 --target {TARGET} --out DIR"


def test_a_remapping_methods_own_factor_is_not_the_length_over_the_trained_one():
    found = advice([trial(AS_IS, beyond=9.0), trial("leaky_rerope:factor=2.333")])
    assert found.line() == "lengthen extend 'a model' --method leaky_rerope:factor=2.333 --factor 2 --out DIR"


def test_what_is_missing_is_said():
    found = advice([trial(AS_IS)], passages=2, stopped="Stopped at the budget, 20 min 0 s: 3 readings are left.")
    assert any("Stopped at the budget" in s for s in found.sentences())
    nothing = advice([trial(AS_IS, failure="out of memory: x")])
    assert nothing.sentences()[0] == "Nothing could be read, so nothing is advised." and nothing.line() is None
