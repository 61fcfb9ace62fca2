"""Every prediction is scored exactly once, with the context that the protocol promises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthen.core import UnknownNameError, UsageError
from lengthen.evaluate.protocols import FixedTargets, NonOverlapping, Sliding, find_protocol, make_protocols

sizes = st.integers(1, 300)


@given(predictions=sizes, length=st.integers(2, 80), scored=sizes, data=st.data())
def test_every_prediction_is_scored_exactly_once(predictions, length, scored, data):
    stride = data.draw(st.one_of(st.none(), st.integers(1, length)))
    for protocol in (NonOverlapping(scored), Sliding(scored, stride), FixedTargets(min(scored, length))):
        picks = protocol.picks(predictions, length)
        hit = sorted(t for p in picks for t in range(p.first, p.stop))
        assert hit == list(range(max(0, predictions - protocol.scored), predictions)), protocol
        for p in picks:
            assert 0 <= p.start <= p.first < p.stop <= predictions
            assert p.stop - p.start <= length


@given(predictions=sizes, length=st.integers(2, 80), scored=sizes, data=st.data())
def test_sliding_windows_give_the_context_that_they_promise(predictions, length, scored, data):
    stride = data.draw(st.integers(1, length))
    for p in Sliding(scored, stride).picks(predictions, length):
        for t in range(p.first, p.stop):
            context = t - p.start + 1
            assert context == t + 1 if p.start == 0 else length - stride + 1 <= context <= length


def test_stride_one_reads_exactly_the_length_before_every_token():
    contexts = {t: t - p.start + 1 for p in Sliding(50, 1).picks(50, 8) for t in range(p.first, p.stop)}
    assert contexts == {t: min(t + 1, 8) for t in range(50)}


def test_windows_of_fifty_tokens_by_hand():
    cut = lambda protocol: [(p.start, p.first, p.stop) for p in protocol.picks(50, 16)]
    assert cut(NonOverlapping(50)) == [(34, 34, 50), (18, 18, 34), (2, 2, 18), (0, 0, 2)]
    assert cut(Sliding(50, 8)) == [(34, 42, 50), (26, 34, 42), (18, 26, 34), (10, 18, 26), (2, 10, 18), (0, 0, 10)]
    assert cut(FixedTargets(4)) == [(34, 46, 50)]


@pytest.mark.parametrize("length", [16, 32, 64, 128])
def test_protocols_meet_in_the_same_windows(length):
    windows = lambda protocol: {p.window for p in protocol.picks(512, length)}
    assert windows(FixedTargets(8)) < windows(NonOverlapping(512)) < windows(Sliding(512, length // 4))


@pytest.mark.parametrize("length", [16, 64, 256, 512])
def test_default_sliding_never_scores_the_first_half_of_a_window(length):
    (sliding,) = make_protocols(["sliding"], [16, 64, 256, 512])
    assert all(p.least_context > length // 2 for p in sliding.picks(512, length))


def test_contexts_of_a_pick_are_counted_from_one():
    (pick,) = FixedTargets(4).picks(50, 16)
    contexts = [t - pick.start + 1 for t in range(pick.first, pick.stop)]
    assert (pick.least_context, pick.mean_context, pick.scored) == (min(contexts), sum(contexts) / 4, 4)


def test_names_are_forgiving_and_near_names_are_listed():
    assert find_protocol("Fixed-Targets") is FixedTargets
    with pytest.raises(UnknownNameError, match="'sliding'"):
        find_protocol("slidng")


def test_repeated_names_are_read_once():
    assert len(make_protocols(["sliding", "sliding"], [8, 16])) == 1


def test_targets_are_cut_to_the_shortest_length():
    (fixed,) = make_protocols(["fixed_targets"], [8, 16], targets=64)
    assert fixed.scored == 8


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"stride": 9}, "stride of 9 would skip tokens at length 8"),
        ({"stride": 0}, "'stride'.*at least 1, got 0"),
        ({"targets": 0}, "'targets'.*got 0"),
        ({"scored": -1}, "'scored'.*got -1"),
        ({"sliding_scored": 0}, "'sliding_scored'.*got 0"),
    ],
)
def test_amounts_that_cannot_work_are_refused(how, words):
    with pytest.raises(UsageError, match=words):
        make_protocols(["sliding"], [8, 16], **how)


def test_no_protocol_at_all_is_refused():
    with pytest.raises(UsageError, match="fixed_targets, non_overlapping, sliding"):
        make_protocols([], [8])
