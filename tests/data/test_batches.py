"""Every token is a target exactly once per epoch, no target crosses a border, and a batch depends on the step only."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthen.core.errors import UsageError
from lengthen.data import Batches, TokenDocument


def documents(sizes):
    """Documents whose tokens are all different: a token then tells its document and place."""
    starts = np.cumsum([0, *sizes])
    return [TokenDocument(f"d{n}", np.arange(starts[n], starts[n] + size), "made") for n, size in enumerate(sizes)]


def epoch_rows(batches, epoch=0):
    """(ids, targets, doc) of the rows of one epoch, in order; doc is zeros where the batch has none."""
    first, rows = epoch * batches.rows, []
    for step in range(first // batches.batch, (first + batches.rows - 1) // batches.batch + 1):
        b = batches.at(step)
        doc = b.doc if b.doc is not None else torch.zeros_like(b.ids)
        rows += [
            (b.ids[r], b.targets[r], doc[r])
            for r in range(batches.batch)
            if first <= step * batches.batch + r < first + batches.rows
        ]
    return rows


def successors(sizes):
    """Token -> its true next token within its document."""
    return {int(a): int(b) for d in documents(sizes) for a, b in pairwise(d.ids)}


def owner(sizes):
    return {int(t): n for n, d in enumerate(documents(sizes)) for t in d.ids}


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    length=st.integers(2, 17),
    batch=st.integers(1, 5),
    seed=st.integers(0, 3),
    packing=st.sampled_from(["cut", "packed"]),
    epoch=st.integers(0, 2),
)
def test_each_token_with_a_predecessor_is_a_target_once_per_epoch(sizes, length, batch, seed, packing, epoch):
    true_next, document_of = successors(sizes), owner(sizes)
    if sum(sizes) <= length or not true_next:
        with pytest.raises(UsageError, match="too small" if sum(sizes) <= length else "two tokens"):
            Batches(documents(sizes), length, batch, seed, packing)
        return
    batches = Batches(documents(sizes), length, batch, seed, packing)
    seen = Counter()
    for ids, targets, doc in epoch_rows(batches, epoch):
        for place in (targets != -100).nonzero()[:, 0].tolist():
            assert true_next[int(ids[place])] == int(targets[place])
            seen[int(targets[place])] += 1
        if packing == "packed":
            owners = [document_of[int(t)] for t in ids]
            same = [a == b for a, b in pairwise(owners)]
            assert [int(s) == 0 for s in doc.diff()] == same and int(doc[0]) == 0 and bool((doc.diff() <= 1).all())
        else:
            real = [int(t) for place, t in enumerate(ids) if place == 0 or t != 0]  # token 0 opens its document
            assert len({document_of[t] for t in real}) == 1
    assert seen == Counter(true_next.values())


def test_cut_rows_are_consecutive_and_padding_is_never_a_target():
    batches = Batches(documents([5, 11, 3]), length=4, batch=1, seed=0, packing="cut")
    rows = {tuple(ids.tolist()): tuple(targets.tolist()) for ids, targets, _ in epoch_rows(batches)}
    assert rows == {
        (0, 1, 2, 3): (1, 2, 3, 4),
        (5, 6, 7, 8): (6, 7, 8, 9),
        (9, 10, 11, 12): (10, 11, 12, 13),
        (11, 12, 13, 14): (-100, -100, 14, 15),
        (16, 17, 18, 0): (17, 18, -100, -100),
    }
    assert all(batches.at(n).doc is None for n in range(5))


def test_packed_rows_ignore_the_target_across_a_border_and_number_documents_within_the_row():
    batches = Batches(documents([3, 2, 4]), length=4, batch=2, seed=0)
    rows = {tuple(ids.tolist()): (targets.tolist(), doc.tolist()) for ids, targets, doc in epoch_rows(batches)}
    assert rows == {
        (0, 1, 2, 3): ([1, 2, -100, 4], [0, 0, 0, 1]),
        (4, 5, 6, 7): ([-100, 6, 7, 8], [0, 1, 1, 1]),
    }


def test_doc_is_none_where_no_row_of_the_batch_crosses():
    batches = Batches(documents([9, 2]), length=4, batch=1, seed=0)
    crossing = {tuple(b.ids[0].tolist()): b.doc is not None for b in map(batches.at, range(batches.rows))}
    assert crossing == {(0, 1, 2, 3): False, (4, 5, 6, 7): False, (6, 7, 8, 9): True}


def test_a_border_at_the_end_of_a_row_ignores_the_last_target_and_needs_no_doc():
    batches = Batches(documents([4, 5]), length=4, batch=2, seed=0)
    rows = {tuple(ids.tolist()): targets.tolist() for ids, targets, _ in epoch_rows(batches)}
    assert rows == {(0, 1, 2, 3): [1, 2, 3, -100], (4, 5, 6, 7): [5, 6, 7, 8]} and batches.at(0).doc is None


@pytest.mark.parametrize("packing", ["cut", "packed"])
def test_a_batch_is_the_same_whatever_was_asked_before(packing):
    made = documents([40, 33, 57])
    fresh = Batches(made, 8, 3, seed=4, packing=packing).at(5)
    used = Batches(made, 8, 3, seed=4, packing=packing)
    for step in (100, 0, 6, 5, 99):
        used.at(step)
    again = used.at(5)
    assert torch.equal(fresh.ids, again.ids) and torch.equal(fresh.targets, again.targets)
    assert again.ids.dtype == again.targets.dtype == torch.int64


def test_the_order_follows_philox_so_that_every_machine_has_the_same():
    """Row order = stable argsort of the raw Philox numbers keyed by (seed, epoch), computed here a second time."""
    batches = Batches(documents([33]), length=4, batch=1, seed=7)
    for epoch in range(3):
        raw = np.random.Philox(key=np.array([7, epoch], dtype=np.uint64)).random_raw(8).tolist()
        expected = sorted(range(8), key=lambda row: raw[row])
        assert [int(ids[0]) // 4 for ids, _, _ in epoch_rows(batches, epoch)] == expected


def test_seeds_and_epochs_order_rows_differently():
    made = documents([401])
    order = lambda seed, epoch: [int(i[0]) for i, _, _ in epoch_rows(Batches(made, 4, 5, seed), epoch)]
    assert len({tuple(order(s, e)) for s in (0, 1) for e in (0, 1)}) == 4
    assert sorted(order(0, 0)) == sorted(order(1, 1)) == list(range(0, 400, 4))


def test_sizes_are_those_of_the_arithmetic():
    batches = Batches(documents([100, 61]), length=10, batch=4, seed=0, packing="cut")
    assert (batches.rows, batches.epoch_steps, batches.tokens_per_step) == (10 + 6, 4, 40)


def test_large_ids_survive_the_compact_storage():
    ids = np.array([0, 255, 256, 65_535, 65_536, 200_000], dtype=np.int64)
    batch = Batches([TokenDocument("d", ids, "made")], 5, 1, 0).at(0)
    assert batch.ids[0].tolist() == ids[:-1].tolist() and batch.targets[0].tolist() == ids[1:].tolist()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"length": 1}, "at least 2, got 1"),
        ({"batch": 0}, "at least 1, got 0"),
        ({"seed": -1}, "at least 0, got -1"),
        ({"packing": "pack"}, "Did you mean 'packed'"),
        ({"length": 50}, "40 tokens, where one row needs 51"),
    ],
)
def test_what_cannot_work_is_refused_with_both_numbers(change, words):
    with pytest.raises(UsageError, match=words):
        Batches(documents([40]), **{"length": 8, "batch": 2, "seed": 0, **change})


def test_a_negative_step_is_refused():
    with pytest.raises(UsageError, match="got -1"):
        Batches(documents([40]), 8, 2, 0).at(-1)
