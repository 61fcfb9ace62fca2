"""SHAPE: one shift per row in training, none drawn in evaluation."""

import numpy as np
import pytest
import torch

from lengthen.core import Shape, UsageError, build
from lengthen.methods.shape import Shift
from lengthen.models import make_decoder, preset

IDX = torch.arange(12)[None]


def test_training_shifts_each_row_by_one_of_the_shifts_uniformly():
    """Every row is a run; over 6000 rows the ten shifts pass a chi-square test (critical value of 9 degrees at 1e-4: 33.7)."""
    torch.manual_seed(0)
    pos = Shift(10).train()(IDX, torch.zeros(6000, 12, dtype=torch.long))
    assert pos.shape == (6000, 12) and (pos.diff(dim=1) == 1).all()
    counts = np.bincount(pos[:, 0].numpy(), minlength=10)
    assert len(counts) == 10
    assert ((counts - 600) ** 2 / 600).sum() < 33.7


def test_a_seed_fixes_the_draw():
    shift, tokens, draws = Shift(500).train(), torch.zeros(8, 12, dtype=torch.long), []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        draws.append(shift(IDX, tokens))
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


@pytest.mark.parametrize(("evaluate", "shift"), [("zero", 0), ("most", 500)])
def test_evaluation_shifts_by_a_constant_and_draws_nothing(evaluate, shift):
    scheme = build(f"shape:evaluate={evaluate}", Shape()).eval()
    state = torch.get_rng_state()
    attention, embedding = scheme.position(IDX)
    assert torch.equal(torch.get_rng_state(), state)
    assert attention[0].tolist() == list(range(12)) and embedding[0].tolist() == list(range(shift, shift + 12))


def test_the_model_sees_sinusoids_of_the_shifted_position():
    """Reading at K is reading, on the same weights, sinusoids computed in numpy for K + p."""
    model = make_decoder(preset("tiny", vocab=50), "shape:evaluate=most,shifts=40", train_length=16).double().eval()
    x, scheme = torch.zeros(1, 12, 64, dtype=torch.float64), model.schemes[0]
    got = scheme.embedding(x, scheme.position(IDX)[1])[0].numpy()
    angle = np.arange(40, 52)[:, None] / 10_000 ** (np.arange(0, 64, 2) / 64)
    np.testing.assert_allclose(got[:, 0::2], np.sin(angle), atol=1e-13)
    np.testing.assert_allclose(got[:, 1::2], np.cos(angle), atol=1e-13)


def test_training_rows_differ_inside_the_model():
    """The same text in 16 rows: one shift for the whole batch would give 16 equal rows."""
    torch.manual_seed(0)
    model = make_decoder(preset("tiny", vocab=50), "shape", train_length=16).train()
    hidden = model.hidden(torch.arange(12)[None].repeat(16, 1))
    assert len({tuple(row.flatten().tolist()) for row in hidden.detach()}) > 12


@pytest.mark.parametrize(
    ("spec", "said"),
    [("shape:shifts=0", "got 0"), ("shape:shifts=2.5", "got 2.5"), ("shape:evaluate=random", "'zero'.*'most'.*500.*'random'")],
)
def test_bad_options_are_refused(spec, said):
    with pytest.raises(UsageError, match=said):
        build(spec, Shape())
