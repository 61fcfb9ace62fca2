"""Evaluation against losses that are known exactly, or computed one token at a time."""

import math

import numpy as np
import pytest
import torch

from lengthen.core import LengthError, Scheme, UnknownNameError, UsageError
from lengthen.core.patterns import Everywhere
from lengthen.evaluate import evaluate
from lengthen.evaluate.losses import _CELLS
from lengthen.models import make_decoder, preset

ALL = ("non_overlapping", "sliding", "fixed_targets")


def texts(vocab: int, *sizes: int) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.integers(0, vocab, n) for n in sizes]


def decoder(spec: str = "rope", train_length: int = 8):
    config = preset("tiny", vocab=11, width=16, heads=2)
    return make_decoder(config, spec, train_length=train_length, seed=0).double()


@pytest.mark.parametrize("vocab", [2, 50, 257])
@pytest.mark.parametrize("stride", [None, 1, 3])
def test_a_uniform_model_has_the_vocabulary_as_perplexity(uniform, vocab, stride):
    documents = texts(vocab, 33, 40, 77)
    found = evaluate(uniform(vocab), documents, train_length=8, lengths=[8, 16, 32], stride=stride, targets=5)
    for reading in found.readings.values():
        assert reading.perplexity == pytest.approx(vocab, rel=1e-6)


@pytest.mark.parametrize("stride", [None, 1, 2, 7])
def test_shifting_the_stride_keeps_the_count(uniform, stride):
    how = dict(train_length=8, lengths=[8, 32], stride=stride, scored=64, sliding_scored=64)
    found = evaluate(uniform(4), texts(4, 80, 90), **how)
    for length in (8, 32):
        assert found.reading("sliding", length).tokens.tolist() == [64, 64]
        assert found.reading("non_overlapping", length).tokens.tolist() == [64, 64]


def test_a_bigram_model_has_its_exact_loss_under_every_protocol(bigram):
    model, documents = bigram(7), texts(7, 40, 33, 120)
    log_p = model.table.detach().numpy()
    exact = [-log_p[ids[:-1], ids[1:]] for ids in documents]
    found = evaluate(model, documents, train_length=8, lengths=[4, 8, 20, 32], scored=200, sliding_scored=30, targets=3)
    scored = {"non_overlapping": 200, "sliding": 30, "fixed_targets": 3}
    for (protocol, length, control), reading in found.readings.items():
        sums = [nats[-scored[protocol] :].sum() for nats in exact]
        np.testing.assert_allclose(reading.nats, sums, rtol=1e-12, err_msg=f"{protocol} {length} {control}")


def test_bits_per_byte_counts_the_bytes_of_the_tokens_scored(uniform):
    width = np.array([1.0, 2.0, 3.0, 4.0])
    documents = texts(4, 20, 30)
    for token_bytes in (width, lambda ids: width[ids]):
        found = evaluate(uniform(4), documents, train_length=8, lengths=[8, 16], targets=5, token_bytes=token_bytes)
        expected = 2 * 10 / sum(width[ids[-5:]].sum() for ids in documents)
        assert found.reading("fixed_targets", 16).bits_per_byte == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("spec", ["rope", "alibi"])
def test_brute_force_on_fifty_tokens(spec):
    model, (ids,) = decoder(spec), texts(11, 51)

    def loss(start: int, t: int) -> float:
        """Of token t + 1 after reading tokens start..t, alone."""
        with torch.no_grad():
            logits = model(torch.from_numpy(ids[start : t + 1])[None])[0, -1].numpy()
        return float(np.log(np.exp(logits).sum()) - logits[ids[t + 1]])

    n, s = 12, 5
    found = evaluate(model, [ids], train_length=8, lengths=[n], stride=s, targets=4, scored=50, sliding_scored=50)
    first = 50 % n
    own = {
        "non_overlapping": [loss(max(0, (t - first) // n * n + first), t) for t in range(50)],
        "sliding": [loss(max(0, 50 - (49 - t) // s * s - n), t) for t in range(50)],
        "fixed_targets": [loss(50 - n, t) for t in range(46, 50)],
    }
    for protocol, losses in own.items():
        assert found.per_document(protocol, n)[0] == pytest.approx(sum(losses), rel=1e-10), protocol


def test_stride_one_is_teacher_forcing_with_the_same_context_everywhere(by_context):
    nats = np.linspace(3, 0.5, 16)
    how = dict(train_length=8, lengths=[8, 16], stride=1, sliding_scored=20)
    found = evaluate(by_context(nats), [np.zeros(50, int)], **how)
    for n in (8, 16):
        assert found.reading("sliding", n).nats_per_token == pytest.approx(nats[n - 1], rel=1e-12)
        assert found.reading("sliding", n).least_context == n


def test_each_protocol_scores_with_its_own_contexts(by_context):
    nats = np.linspace(3, 0.5, 32)
    found = evaluate(by_context(nats), [np.zeros(65, int)], train_length=8, lengths=[8, 16, 32], targets=4)
    for n in (8, 16, 32):
        expected = {"non_overlapping": nats[:n], "sliding": nats[n // 2 : n], "fixed_targets": nats[n - 4 : n]}
        for protocol, losses in expected.items():
            reading = found.reading(protocol, n)
            assert reading.nats_per_token == pytest.approx(losses.mean(), rel=1e-12)
            assert reading.least_context == n - len(losses) + 1
            assert reading.mean_context == n - (len(losses) - 1) / 2
    change = found.change("fixed_targets", 32)
    assert change.value == pytest.approx(nats[28:].mean() - nats[4:8].mean(), rel=1e-12)


def test_the_curve_is_the_loss_by_position(by_context):
    nats = np.linspace(3, 0.5, 100)
    found = evaluate(by_context(nats), [np.zeros(k, int) for k in (101, 130)], train_length=8, lengths=[8, 100])
    curve = found.curves["none"]
    assert curve.edges[0] == 0 and curve.edges[-1] == 100 and (np.diff(curve.edges) > 0).all()
    pairs = zip(curve.edges[:-1], curve.edges[1:], strict=True)
    np.testing.assert_allclose(curve.means, [nats[a:b].mean() for a, b in pairs], rtol=1e-12)


def test_batches_do_not_matter():
    model, documents = decoder(), texts(11, 40, 33, 52, 70)
    how = dict(train_length=8, lengths=[8, 20, 32], targets=5)
    whole, alone = (evaluate(model, documents, batch_tokens=b, **how) for b in (4096, 1))
    for key, reading in whole.readings.items():
        np.testing.assert_allclose(reading.nats, alone.readings[key].nats, rtol=1e-11)


def test_controls_read_the_same_weights_under_the_pattern():
    documents = texts(11, 60, 70)
    how = dict(train_length=8, lengths=[8, 16, 32], targets=5)
    found = evaluate(decoder(), documents, **how)
    built = {"window": decoder("rope+window:tokens=8"), "bca": decoder("rope+bca:block=4")}
    for control, model in built.items():
        own = evaluate(model, documents, controls=("none",), **how)
        for protocol in ALL:
            for n in (8, 16, 32):
                np.testing.assert_allclose(found.per_document(protocol, n, control), own.per_document(protocol, n), rtol=1e-11)
        assert abs(found.reading("fixed_targets", 32).nats - found.reading("fixed_targets", 32, control).nats).min() > 1e-6


def test_bca_of_an_odd_training_length_is_read_anew_at_that_length():
    documents = texts(11, 40)
    how = dict(train_length=7, lengths=[6, 7, 14], targets=1)
    found = evaluate(decoder(train_length=7), documents, **how)
    own = evaluate(decoder("rope+bca:block=3", train_length=7), documents, controls=("none",), **how)
    for n in (6, 7, 14):
        np.testing.assert_allclose(
            found.per_document("fixed_targets", n, "bca"), own.per_document("fixed_targets", n), rtol=1e-11
        )
    assert found.per_document("fixed_targets", 7, "bca") != found.per_document("fixed_targets", 7)
    above = found.per_document("fixed_targets", 14, "bca") - found.per_document("fixed_targets", 7)
    assert found.change("fixed_targets", 14, "bca").value == pytest.approx(above[0])


def test_documents_count_by_their_tokens(by_context):
    nats = np.linspace(3, 0.5, 16)
    found = evaluate(by_context(nats), [np.zeros(k, int) for k in (20, 90)], train_length=8, lengths=[16], scored=1000)
    reading = found.reading("non_overlapping", 16)
    sums = [nats[: k % 16].sum() + k // 16 * nats.sum() for k in (19, 89)]
    assert reading.tokens.tolist() == [19, 89]
    assert reading.nats_per_token == found.interval("non_overlapping", 16).value == pytest.approx(sum(sums) / 108)


def test_no_window_is_read_twice(uniform):
    model, documents = uniform(50), texts(50, 65, 80)
    found = evaluate(model, documents, train_length=8, lengths=[8, 16, 32, 64], controls=("none",))
    assert len(set(model.rows)) == len(model.rows)
    disjoint, between = 64 // 8 + 64 // 16 + 64 // 32 + 1, 32 // 8 + 32 // 16 + 32 // 32
    assert len(model.rows) == 2 * (disjoint + between)
    assert found.tokens_read == sum(map(len, model.rows))


def test_memory_is_bounded(uniform):
    model = uniform(50_000)
    evaluate(model, texts(50_000, 300, 300), train_length=8, lengths=[8, 64, 256], batch_tokens=128)
    assert model.largest == 256
    assert model.cells <= _CELLS


def test_the_mode_is_restored_and_dropout_is_off():
    config = preset("tiny", vocab=11, width=16, heads=2, dropout=0.5)
    model = make_decoder(config, "rope", train_length=8).train()
    how = dict(train_length=8, lengths=[8, 16], controls=("none",))
    a, b = (evaluate(model, texts(11, 40), **how).reading("sliding", 16).nats for _ in range(2))
    assert a == b
    assert model.training and all(m.training for m in model.modules())


def test_progress_hears_every_token(uniform):
    heard = []
    found = evaluate(
        uniform(5), texts(5, 40), train_length=8, lengths=[8, 32], progress=lambda done, total: heard.append((done, total))
    )
    assert heard[-1] == (found.tokens_read, found.tokens_read)
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)


def test_losses_that_are_not_finite_stay_visible(bigram):
    model = bigram(5)
    with torch.no_grad():
        model.table[3, 4] = float("-inf")
    documents = [np.zeros(40, int), np.array([0, 1] * 19 + [3, 4])]
    found = evaluate(model, documents, train_length=8, lengths=[8, 16], targets=5)
    reading = found.reading("fixed_targets", 16)
    assert math.isfinite(reading.nats[0]) and math.isinf(reading.nats[1]) and math.isinf(reading.nats_per_token)
    interval = found.interval("fixed_targets", 16)
    assert interval.low is None and "1 of 2 documents" in interval.note
    record = next(r for r in found.records(run="r", method="m", seed=0) if r.protocol == "fixed_targets")
    assert math.isinf(record.value) and "1 of 2 documents" in record.reason


def test_a_length_without_an_answer_is_reported_with_its_reason(uniform):
    model = uniform(5)
    answer = model.hidden

    def hidden(ids, *, backend=None):
        if ids.shape[1] > 16:
            raise LengthError("The table holds 16 positions, got 32.")
        return answer(ids)

    model.hidden = hidden
    found = evaluate(model, texts(5, 40, 50), train_length=8, lengths=[8, 16, 32], targets=5)
    assert found.reading("sliding", 16).perplexity == pytest.approx(5)
    reading = found.reading("sliding", 32)
    assert np.isnan(reading.nats).all() and reading.reason == "The table holds 16 positions, got 32."
    assert found.curves == {}
    rows = [r for r in found.records(run="r", method="m", seed=0) if r.eval_length == 32]
    assert rows and all(math.isnan(r.value) and "16 positions" in r.reason for r in rows)


def test_records_hold_every_number_with_its_controls(by_context):
    nats = np.linspace(3, 0.5, 32)
    found = evaluate(
        by_context(nats),
        [np.zeros(k, int) for k in (33, 40)],
        train_length=8,
        lengths=[16, 32],
        targets=4,
        token_bytes=np.ones(2),
    )
    rows = found.records(run="r", method="rope", seed=7, params={"base": 1e4}, extra={"commit": "abc"})
    keyed = {(r.protocol, r.eval_length, r.control, r.metric): r for r in rows if r.protocol != "position"}
    assert len(keyed) == 3 * 3 * (3 + 3 + 2)
    row = keyed["fixed_targets", 32, "window", "nats_above_in_length"]
    assert row.value == pytest.approx(nats[28:].mean() - nats[4:8].mean())
    assert (row.n, row.seed, row.method, row.params, row.train_length) == (2, 7, "rope", {"base": 1e4}, 8)
    assert (row.extra["tokens"], row.extra["least_context"], row.extra["commit"]) == (8, 29, "abc")
    bits = keyed["sliding", 16, "none", "bits_per_byte"]
    assert bits.value == pytest.approx(nats[8:16].mean() / math.log(2))
    curve = [r for r in rows if r.protocol == "position" and r.control == "none"]
    assert curve[0].value == pytest.approx(nats[0]) and curve[-1].extra["most_context"] == 32


def test_documents_that_are_too_short_are_counted(uniform):
    documents = texts(5, 33, 32, 40, 8, 50, 60)
    found = evaluate(uniform(5), documents, train_length=8, lengths=[8, 32], most_documents=3)
    assert (found.selection.chosen, found.selection.too_short, found.selection.spare) == ((0, 2, 4), 2, 1)
    assert len(found.per_document("sliding", 32)) == 3


@pytest.mark.parametrize(
    ("lengths", "words"),
    [
        ([1, 8], "at least 2, got 1 in 1 8"),
        ([8, 8, 16], "8 is given twice in 8 8 16"),
        ([16, 8], "got 8 after 16. Give them as 8 16"),
        ([8.0], "whole number of tokens, at least 2, got 8.0"),
        ([], "No length was given"),
        ([8, 50], "length 50 is longer than any held-out document: the longest of 2 has 50 tokens, and 51 are needed"),
    ],
)
def test_lengths_that_cannot_work_say_what_is_there(uniform, lengths, words):
    with pytest.raises(UsageError, match=words):
        evaluate(uniform(5), texts(5, 40, 50), train_length=8, lengths=lengths)


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ({"protocols": ["fixed"]}, UnknownNameError, "no protocol named 'fixed'"),
        ({"controls": ["windw"]}, UnknownNameError, "'window'"),
        ({"most_documents": 0}, UsageError, "'most_documents'.*got 0"),
        ({"batch_tokens": 0}, UsageError, "'batch_tokens'.*got 0"),
        ({"train_length": 1}, UsageError, "'train_length'.*at least 2, got 1"),
        ({"token_bytes": np.ones(2)}, UsageError, "'token_bytes' has 2 entries"),
        ({"token_bytes": lambda ids: np.ones(3)}, UsageError, r"each of 39 tokens, got \[3\]"),
    ],
)
def test_unknown_names_and_amounts_are_refused(uniform, how, kind, words):
    with pytest.raises(kind, match=words):
        evaluate(uniform(5), texts(5, 40), **{"train_length": 8, "lengths": [8, 16], **how})


@pytest.mark.parametrize("wrong", [np.array([0, 5] * 20), np.array([0, -1] * 20), np.zeros(40), np.zeros((2, 40), int)])
def test_documents_of_another_vocabulary_are_refused(uniform, wrong):
    with pytest.raises(UsageError, match="Document 1"):
        evaluate(uniform(5), [*texts(5, 40), wrong], train_length=8, lengths=[8, 16])


def test_no_document_at_all_is_refused(uniform):
    with pytest.raises(UsageError, match="no document at all"):
        evaluate(uniform(5), [], train_length=8, lengths=[8, 16])


def test_a_model_that_reads_its_targets_is_refused(uniform):
    model = uniform(5)
    model.schemes = (Scheme(pattern=Everywhere()),)
    with pytest.raises(UsageError, match="Layer 0 attends in both directions"):
        evaluate(model, texts(5, 40), train_length=8, lengths=[8, 16])


def test_a_reading_that_was_not_made_lists_near_ones(uniform):
    found = evaluate(uniform(5), texts(5, 40), train_length=8, lengths=[8, 16])
    with pytest.raises(UnknownNameError, match="sliding / 16 / none"):
        found.reading("slidin", 16)


def test_controls_that_hide_nothing_are_not_read_again(uniform):
    how = dict(train_length=16, lengths=[8, 16])
    plain, controlled = (
        evaluate(uniform(5), texts(5, 40), controls=names, **how) for names in (("none",), ("none", "window", "bca"))
    )
    assert controlled.tokens_read == plain.tokens_read
    assert controlled.reading("sliding", 16, "bca") is controlled.reading("sliding", 16)
