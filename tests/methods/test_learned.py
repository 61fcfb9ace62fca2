"""The learned table: rows by position, nothing on padding, a sentence beyond the end."""

import pytest
import torch

from lengthen.core import LengthError, Shape, UsageError, build
from lengthen.models import make_decoder, preset

SHAPE = Shape(width=64, train_length=48)


def test_adds_the_row_of_each_position():
    embedding = build("learned", SHAPE).embedding
    assert embedding.table.shape == (48, 64)
    x = torch.randn(2, 3, 64, generator=torch.Generator().manual_seed(0))
    got = embedding(x, torch.tensor([[0, 47, 5], [7, 7, 1]]))
    table = embedding.table.detach().numpy()
    for row, positions in enumerate(((0, 47, 5), (7, 7, 1))):
        for t, p in enumerate(positions):
            assert (got[row, t].detach().numpy() == x[row, t].numpy() + table[p]).all()


def test_initialised_like_gpt2():
    """4096 x 64 draws: the sample deviation is within 1% of 0.02, the mean within five standard errors of 0."""
    torch.manual_seed(0)
    table = build("learned:length=4096", SHAPE).embedding.table.detach()
    assert table.std().item() == pytest.approx(0.02, rel=0.01)
    assert abs(table.mean().item()) < 5 * 0.02 / table.numel() ** 0.5


def test_gradient_counts_the_uses_of_a_row_and_padding_uses_none():
    embedding = build("learned", SHAPE).embedding
    embedding(torch.zeros(2, 4, 64), torch.tensor([[-1, -1, 0, 1], [0, 1, 2, 3]])).sum().backward()
    uses = torch.zeros(48)
    uses[:4] = torch.tensor([2.0, 2.0, 1.0, 1.0])
    assert torch.equal(embedding.table.grad, uses[:, None].expand(48, 64))


def test_padding_is_left_alone():
    x = torch.randn(1, 2, 64, generator=torch.Generator().manual_seed(0))
    got = build("learned", SHAPE).embedding(x, torch.tensor([[-1, 0]]))
    assert torch.equal(got[0, 0], x[0, 0])


def test_beyond_the_table_is_a_sentence_with_both_numbers():
    embedding = build("learned", SHAPE).embedding
    embedding(torch.zeros(1, 1, 64), torch.tensor([[47]]))
    with pytest.raises(LengthError, match=r"has 48 positions.*position 48.*learned:length=49"):
        embedding(torch.zeros(1, 1, 64), torch.tensor([[48]]))


def test_a_model_reads_to_the_end_of_its_table_and_no_further():
    model = make_decoder(preset("tiny", vocab=50), "learned", train_length=24).eval()
    ids, cache = torch.arange(25)[None], model.new_cache()
    model(ids[:, :24], cache=cache)
    with pytest.raises(LengthError, match="24 positions"):
        model(ids[:, 24:], cache=cache)


def test_left_padding_does_not_use_up_the_table():
    model = make_decoder(preset("tiny", vocab=50), "learned", train_length=24).double().eval()
    ids = torch.arange(20)[None]
    padded = torch.cat((torch.zeros(1, 10, dtype=torch.long), ids), dim=1)
    got = model(padded, valid=(torch.arange(30) >= 10)[None])[:, 10:]
    torch.testing.assert_close(got, model(ids), rtol=0, atol=1e-12)


def test_bfloat16_keeps_every_row():
    """Rows are looked up by whole position: in bfloat16 257 would become 256."""
    embedding = build("learned:length=5000", SHAPE).bfloat16().embedding
    at = torch.tensor([[256, 257, 4095, 4999]])
    got = embedding(torch.zeros(1, 4, 64, dtype=torch.bfloat16), at)
    assert torch.equal(got[0], embedding.table[at[0]])


def test_real_positions_are_refused():
    with pytest.raises(UsageError, match="whole position"):
        build("learned", SHAPE).embedding(torch.zeros(1, 1, 64), torch.tensor([[0.5]]))


@pytest.mark.parametrize(("option", "said"), [("length=0", "got 0"), ("length=1.5", "got 1.5"), ("std=-1", "got -1")])
def test_bad_options_are_refused(option, said):
    with pytest.raises(UsageError, match=said):
        build(f"learned:{option}", SHAPE)
