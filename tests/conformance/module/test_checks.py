"""Right encodings pass every check of their kind; each wrong one is caught by the check that names its fault."""

import pytest

from lengthen.conformance.module import CHECKS, check_module

from . import encodings as e

RIGHT = (e.Rotary, e.Alibi, e.Buckets, e.Sinusoidal, e.Learned)
CAUGHT_BY = {
    e.Absolute: "relative",
    e.FromZero: "offset",
    e.BufferRotary: "meta_device",
    e.AnglesOfTheInput: "bfloat16_inputs",
    e.HalfPositions: "float16_inputs",
    e.AutocastAngles: "autocast",
    e.Growing: "finite",
    e.Noisy: "repeatable",
    e.Remembering: "earlier_calls",
    e.RewardsFar: "decay",
    e.QueryWindow: "alignment",
    e.OneTokenBlind: "one_token_row",
    e.HalfAlibi: "distinct",
    e.Skewed: "shift_invariance",
    e.Power: "finite",
    e.TopLeftBuckets: "alignment",
    e.HalfSinusoidal: "bfloat16",
    e.WrapsAround: "never_wraps",
    e.Clamps: "never_wraps",
    e.FromZeroLearned: "own_position",
}


@pytest.mark.parametrize("encoding", RIGHT, ids=lambda c: c.__name__)
def test_a_right_encoding_passes(encoding):
    report = check_module(encoding)
    assert not report.failures, [(v.check, v.measured(), v.reason) for v in report.failures]
    assert report.counts()["pass"] >= 8


@pytest.mark.parametrize("encoding", CAUGHT_BY, ids=lambda c: c.__name__)
def test_a_wrong_encoding_is_caught(encoding):
    verdict = check_module(encoding, only=[CAUGHT_BY[encoding]]).verdicts[0]
    assert verdict.outcome == "fail", verdict.measured() + verdict.reason
    assert verdict.meaning
    assert verdict.cause


@pytest.mark.parametrize(
    ("encoding", "check"),
    [(e.AnglesOfTheInput, "bfloat16"), (e.HalfPositions, "float16"), (e.FromZero, "cached_scores"), (e.HalfAlibi, "bfloat16"),
     (e.HalfAlibi, "float16"), (e.HalfSinusoidal, "float16"), (e.HalfSinusoidal, "distinct"), (e.HalfSinusoidal, "finite")],
    ids=lambda x: x if isinstance(x, str) else x.__name__,
)  # fmt: skip
def test_so_are_the_other_faces_of_the_same_fault(encoding, check):
    assert check_module(encoding, only=[check])[check].bad


def test_every_check_has_a_fault_that_it_catches():
    caught = {(check_module(c, only=[n]).verdicts[0].asserts) for c, n in CAUGHT_BY.items()}
    faces = {
        "After `.bfloat16()`",
        "After `.half()`",
        "The last token, and the last five, against",
        "Neighbouring keys",
        "No two",
        "Positions up",
    }
    left = [c for c in CHECKS if c.asserts not in caught and not any(c.asserts.startswith(f) for f in faces)]
    assert not left, [(c.theme, c.name) for c in left]


def test_the_unit_of_a_rotary_error_is_a_nat_of_attention():
    """Keys turned from 0 and queries at 39 as if at 0: the error is a difference of scores q . k / sqrt(D)."""
    verdict = check_module(e.FromZero, only=["cached_scores"])["cached_scores"]
    assert 0.5 < verdict.error < 20
