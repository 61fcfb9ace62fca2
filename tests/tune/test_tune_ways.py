"""Positions, arms and rows of every way, against what the papers say of them."""

import numpy as np
import pytest
import torch

from lengthen.core import Geometric, PositionMap, Refusal, Scheme, UsageError
from lengthen.data import TokenDocument
from lengthen.methods.rope import Rotary
from lengthen.models import DecoderConfig, make_decoder
from lengthen.tune import Dropped, FullLength, Scattered, ShiftedSparse, SkipWise
from lengthen.tune.batches import TuneBatches
from lengthen.tune.objective import DecoderObjective

ENDS = {"trained": 16, "target": 64}


def documents(*sizes: int) -> list[TokenDocument]:
    rng = np.random.default_rng(0)
    return [TokenDocument(f"d{n}", rng.integers(0, 31, size), "here") for n, size in enumerate(sizes)]


@pytest.mark.parametrize("chunks", [1, 2, 3, 5, 16])
def test_pose_has_its_chunks_and_covers_every_distance(chunks):
    way = SkipWise(**ENDS, chunks=chunks)
    pos = torch.cat([way.positions(64, (0, step)) for step in range(40)])
    steps = pos.diff(dim=1)
    assert pos.shape == (2560, 16) and (pos[:, 0] == 0).all() and pos.max() <= 63 and (steps >= 1).all()
    assert ((steps > 1).sum(1) <= chunks - 1).all()
    if chunks > 1:
        assert ((steps > 1).sum(1) >= 1).float().mean() > 0.9
        distances = (pos[:, :, None] - pos[:, None]).unique()
        assert set(range(64)) <= set(distances.tolist())
    else:
        assert torch.equal(pos[0], torch.arange(16))


def test_randomised_positions_are_sorted_distinct_and_differ_between_rows():
    pos = torch.cat([Scattered(**ENDS).positions(64, (0, step)) for step in range(20)])
    assert (pos.diff(dim=1) >= 1).all() and pos.min() == 0 and pos.max() == 63
    assert len(pos.unique(dim=0)) > 1000
    # A uniform sample of 16 out of 64 has the mean 31.5 and each value in a quarter of the rows.
    assert abs(pos.double().mean() - 31.5) < 0.5
    share = torch.bincount(pos.flatten(), minlength=64) / len(pos)
    assert (share - 0.25).abs().max() < 0.06


@pytest.mark.parametrize("way", [SkipWise(**ENDS), Scattered(**ENDS)])
def test_positions_are_a_function_of_the_step_and_leave_the_callers_randomness_alone(way):
    torch.manual_seed(3)
    expected = torch.rand(3, generator=torch.Generator().manual_seed(3))
    a, b, c = (way.positions(4, (7, step)) for step in (1, 1, 2))
    assert torch.equal(a, b) and not torch.equal(a, c)
    assert torch.equal(torch.rand(3), expected)


def test_mixing_spreads_short_steps_and_keeps_their_tokens():
    batches = TuneBatches(documents(300, 200, 40), SkipWise(**ENDS), batch=4, steps=100, mix=0.25)
    short = [step for step in range(100) if batches.at(step).extra["arm"] == "plain"]
    assert len(short) == 25 and set(np.diff(short)) == {4}
    full = TuneBatches(documents(300, 200, 40), FullLength(**ENDS), batch=2, steps=10, mix=0.5)
    shapes = {tuple(full.at(step).ids.shape) for step in range(10)}
    assert shapes == {(2, 64), (8, 16)}
    for step in (0, 3):
        again = full.at(step)
        assert torch.equal(full.at(step).ids, again.ids) and (again.targets == -100).sum() < again.targets.numel()


def test_rows_are_never_padded_and_never_cross_documents():
    sizes = (300, 200, 65, 64, 20)
    made = documents(*sizes)
    batches = TuneBatches(made, FullLength(**ENDS), batch=3, steps=9)
    whole = [np.asarray(d.ids) for d in made if len(d.ids) > 64]
    for step in range(9):
        for row, target in zip(batches.at(step).ids.numpy(), batches.at(step).targets.numpy(), strict=True):
            assert any((w[n : n + 64] == row).all() for w in whole for n in range(len(w) - 64))
            assert (target != -100).any()


def test_drope_drops_at_its_step():
    way = Dropped(**ENDS, at=0.5)
    assert [way.arm(s, 10) for s in range(10)] == ["plain"] * 5 + ["dropped"] * 5
    assert {Dropped(**ENDS).arm(s, 10) for s in range(10)} == {"dropped"}


@pytest.fixture(scope="module")
def model():
    return make_decoder(DecoderConfig(vocab=31, layers=2, heads=4, width=32), "rope", 16, seed=1).double()


def nats(objective, arm, ids, pos=None):
    return objective(ids, ids.roll(-1, 1), arm=arm, pos=pos).item()


def test_moved_positions_reach_the_rotation_and_nothing_else(model):
    """PoSE at consecutive positions, or all moved by a constant, is plain training; a gap is felt by every layer."""
    ids = torch.randint(0, 31, (2, 16), generator=torch.Generator().manual_seed(0))
    objective = DecoderObjective(model, SkipWise(**ENDS))
    plain = nats(objective, "plain", ids)
    line = torch.arange(16).expand(2, -1)
    assert nats(objective, "moved", ids, line) == pytest.approx(plain, abs=1e-9)
    assert nats(objective, "moved", ids, line + 40) == pytest.approx(plain, abs=1e-9)
    gap = line + 20 * (line >= 8)
    assert abs(nats(objective, "moved", ids, gap) - plain) > 1e-4

    class Gap(PositionMap):
        def forward(self, idx, tokens=None):
            return idx + 20 * (idx >= 8)

    other = model.under(lambda s: Scheme(positions=Gap(), rotation=Rotary(Geometric(), 8)))
    expected = torch.nn.functional.cross_entropy(other(ids).flatten(0, 1), ids.roll(-1, 1).flatten(), reduction="sum").item()
    assert nats(objective, "moved", ids, gap) == pytest.approx(expected, abs=1e-9)


def test_after_a_gap_the_second_chunk_still_reads_the_first(model):
    """transformers 5 takes gaps in position_ids for borders of documents; ours must not."""
    objective = DecoderObjective(model, SkipWise(**ENDS))
    ids = torch.randint(0, 31, (1, 16), generator=torch.Generator().manual_seed(0))
    pos = torch.cat((torch.arange(8), torch.arange(48, 56)))[None]
    other, targets = ids.clone(), ids.clone()
    other[0, 2] = (ids[0, 2] + 1) % 31
    targets[:, :9] = -100
    losses = [objective(x, targets, arm="moved", pos=pos).item() for x in (ids, other)]
    assert abs(losses[0] - losses[1]) > 1e-6


def test_dropped_is_the_model_without_rotation(model):
    ids = torch.randint(0, 31, (2, 16), generator=torch.Generator().manual_seed(0))
    way = Dropped(**ENDS)
    objective = DecoderObjective(model, way)
    nope = make_decoder(model.config, "nope", 16).double()
    nope.load_state_dict(model.state_dict())
    expected = torch.nn.functional.cross_entropy(nope(ids).flatten(0, 1), ids.roll(-1, 1).flatten(), reduction="sum").item()
    assert nats(objective, "dropped", ids) == pytest.approx(expected, abs=1e-9)
    # Beyond the trained length the result is sharper, by ln n / ln L.
    longer = torch.randint(0, 31, (1, 40), generator=torch.Generator().manual_seed(1))
    sharp = make_decoder(model.config, way.spec, 16).double()
    sharp.load_state_dict(model.state_dict())
    torch.testing.assert_close(objective.outcome()(longer), sharp(longer), rtol=0, atol=1e-10)
    assert not torch.allclose(sharp(longer)[:, 20:], nope(longer)[:, 20:])
    torch.testing.assert_close(sharp(longer)[:, :16], nope(longer)[:, :16], rtol=0, atol=1e-10)


def test_bad_input_names_both_numbers(model):
    for make, words in (
        (lambda: SkipWise(16, 64, chunks=17), ("16", "17")),
        (lambda: SkipWise(16, 64, chunks=0), ("chunks", "0")),
        (lambda: FullLength(64, 16), ("16", "64")),
        (lambda: Dropped(16, 64, at=1.0), ("[0, 1)", "1.0")),
        (lambda: TuneBatches(documents(40, 64), FullLength(**ENDS), 2, 4), ("64", "65")),
        (lambda: TuneBatches(documents(300), FullLength(**ENDS), 2, 4, mix=1.0), ("[0, 1)", "1.0")),
        (lambda: TuneBatches([], SkipWise(**ENDS), 2, 4), ("0", "17")),
    ):
        with pytest.raises(UsageError) as error:
            make()
        assert all(word in str(error.value) for word in words), str(error.value)
    placed = make_decoder(DecoderConfig(vocab=31, layers=1, heads=2, width=16), "rope+randomised", 16)
    with pytest.raises(Refusal, match="places tokens itself"):
        DecoderObjective(placed, SkipWise(**ENDS))
    with pytest.raises(Refusal, match="only turns"):
        objective = DecoderObjective(make_decoder(model.config, "alibi", 16), ShiftedSparse(**ENDS))
        objective(torch.zeros(1, 64, dtype=torch.long), torch.zeros(1, 64, dtype=torch.long), arm="shifted", pos=None)
