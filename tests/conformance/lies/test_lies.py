"""Each lie is caught by the check that should catch it; the honest model passes every check that applies."""

import pytest

from lengthen.conformance.model.suite import check_model

from . import liars
from .honest import Honest, HonestSubject, Settings

CAUGHT_BY = {
    liars.StepOneLate: "cached_tokens",
    liars.HeadsMixedWhileDecoding: "cached_tokens",
    liars.WindowWiderWhileDecoding: "cached_switch",
    liars.TurnedKeysOfTheOldLength: "cached_switch",
    liars.TopLeftCausalChunks: "cached_chunks",
    liars.OnlyTheLastOfAChunk: "cached_chunks",
    liars.LooksOneAhead: "prefix",
    liars.BaseByWholeLength: "prefix",
    liars.BaseByLongestRow: "batch_mates",
    liars.PaddingIsText: "mask_hides",
    liars.CountsPadding: "left_padding",
    liars.StepsShareOnePosition: "left_padding_cached",
    liars.MaskedPathIsSofter: "ones_mask",
    liars.OneDocument: "packed",
    liars.OneDocumentUnderAMask: "packed_ones_mask",
    liars.GapsAreBorders: "position_gaps",
    liars.IgnoresPositions: "positions_read",
    liars.DropsOut: "repeatable",
    liars.RemembersTheLongest: "earlier_requests",
    liars.Wraps: "shift",
    liars.RotaryInTheTypeOfX: "bfloat16",
    liars.PositionsInFloat16: "float16",
    liars.AnglesByMatmul: "autocast",
    liars.KeyIndexBiasInHalf: "bfloat16_long",
    liars.FactorTwice: "logit_multiplier",
    liars.AnotherBase: "frequencies",
}


def caught(subject: HonestSubject, check: str) -> None:
    verdict = check_model(subject, only=[check])[check]
    assert verdict.outcome == "fail", f"{subject.name} passes {check}: {verdict.measured()}{verdict.reason}"
    assert verdict.meaning
    assert verdict.cause


def test_the_honest_model_passes():
    report = check_model(HonestSubject(Honest(Settings())))
    assert not report.failures, [(v.check, v.reason) for v in report.failures]
    assert set(CAUGHT_BY.values()) <= {v.check for v in report.verdicts if v.outcome == "pass"}


@pytest.mark.parametrize("lie", CAUGHT_BY, ids=lambda lie: lie.__name__)
def test_a_lie_is_caught(lie):
    caught(HonestSubject(lie(Settings())), CAUGHT_BY[lie])


def test_a_lost_base_is_caught():
    caught(liars.LosesBase(Honest(Settings())), "reload")


def test_a_lost_length_is_caught():
    caught(liars.LosesLength(Honest(Settings())), "reload_settings")


def test_a_clamped_table_is_caught():
    caught(HonestSubject(liars.ClampedTable(Settings()), absolute=True), "beyond_declared")
