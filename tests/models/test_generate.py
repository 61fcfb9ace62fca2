import pytest
import torch

from lengthen.core import UsageError
from lengthen.models import DecoderConfig, make_decoder
from lengthen.models.generate import generate

CONFIG = DecoderConfig(vocab=13, layers=2, heads=4, groups=2, width=16)
SPECS = ["nope", "rope", "alibi", "t5", "fire", "xpos", "shaw", "rope+window:tokens=4", "alibi+log_n"]


def model(spec="rope"):
    return make_decoder(CONFIG, spec, train_length=16, seed=2).double()


def prompts(batch=3, length=5):
    return torch.randint(13, (batch, length), generator=torch.Generator().manual_seed(1))


def read_again(net, ids, new_tokens):
    """The most likely continuation, with everything recomputed for each token."""
    with torch.no_grad():
        for _ in range(new_tokens):
            ids = torch.cat([ids, net.eval()(ids)[:, -1].argmax(-1, keepdim=True)], dim=1)
    return ids


@pytest.mark.parametrize("spec", SPECS)
def test_with_the_cache_as_without(spec):
    net = model(spec)
    assert torch.equal(generate(net, prompts(), 12), read_again(net, prompts(), 12))


@pytest.mark.parametrize("spec", SPECS)
def test_left_padded_rows_continue_as_they_do_alone(spec):
    net, ids = model(spec), prompts(3, 6)
    valid = torch.tensor([[0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1]]).bool()
    together = generate(net, ids.masked_fill(~valid, 7), 8, valid=valid)
    for row in range(3):
        alone = generate(net, ids[row : row + 1, valid[row]], 8)
        assert torch.equal(together[row, -8:], alone[0, -8:])


def test_stop_token_fills_the_row_and_ends_when_all_rows_have_it():
    net, ids = model(), prompts(2)
    free = generate(net, ids, 10)
    stop = int(free[0, 7])
    first = [(row[5:] == stop).nonzero() for row in free]
    out = generate(net, ids, 10, stop=stop)
    for row, found in enumerate(first):
        end = int(found[0]) + 6 if len(found) else out.shape[1]
        assert torch.equal(out[row, :end], free[row, :end])
        assert (out[row, end:] == stop).all()
    alone = generate(net, ids[:1], 10, stop=stop)
    assert alone.shape[1] == int(first[0][0]) + 6


def test_sampling_is_seeded_and_follows_the_distribution():
    net, ids = model(), prompts(1, 3)
    many = ids.expand(4000, -1)
    draws = generate(net, many, 1, temperature=2.0, seed=3)[:, -1]
    assert torch.equal(draws, generate(net, many, 1, temperature=2.0, seed=3)[:, -1])
    assert not torch.equal(draws, generate(net, many, 1, temperature=2.0, seed=4)[:, -1])
    with torch.no_grad():
        expected = (net(ids)[0, -1] / 2.0).softmax(-1)
    shares = torch.bincount(draws, minlength=13) / 4000
    # Three standard deviations of a share of 4000 draws are at most 0.024.
    assert (shares - expected).abs().max() < 0.024


def test_top_k_keeps_the_most_likely():
    net, ids = model(), prompts(1, 3)
    with torch.no_grad():
        best = set(net(ids)[0, -1].topk(3).indices.tolist())
    drawn = generate(net, ids.expand(500, -1), 1, temperature=5.0, top_k=3)[:, -1]
    assert set(drawn.tolist()) == best
    assert torch.equal(generate(net, ids, 6, temperature=1.0, top_k=1), generate(net, ids, 6))
    assert generate(net, ids, 2, temperature=1.0, top_k=99).shape == (1, 5)


def test_generation_leaves_training_mode_and_the_global_generator_alone():
    net = model().train()
    torch.manual_seed(0)
    expected = torch.rand(2)
    torch.manual_seed(0)
    out = generate(net, prompts(), 3, temperature=1.0)
    assert net.training and torch.equal(torch.rand(2), expected) and not out.requires_grad
    assert not generate(net.eval(), prompts(), 1).requires_grad and not net.training


@pytest.mark.parametrize(
    ("ids", "settings", "message"),
    [
        (torch.zeros(5, dtype=torch.long), {}, r"got \(5,\)"),
        (torch.zeros(2, 0, dtype=torch.long), {}, "at least one token"),
        (prompts(), {"new_tokens": 0}, "'new_tokens' of generate must be a whole number of tokens, at least 1, got 0"),
        (prompts(), {"temperature": -1.0}, "got -1.0"),
        (prompts(), {"temperature": float("nan")}, "got nan"),
        (prompts(), {"temperature": float("inf")}, "got inf"),
        (prompts(), {"temperature": "warm"}, "got 'warm'"),
        (prompts(), {"top_k": 0}, "'top_k' of generate"),
        (prompts().float(), {}, "int64 or int32, got torch.float32"),
        (prompts() + 1000, {}, "The prompt holds tokens from 1"),
        (prompts() - 1000, {}, "The prompt holds tokens from -"),
        (prompts()[:0], {}, r"got \(0, 5\)"),
        (prompts(), {"stop": 1000}, "'stop' of generate must be a token id from 0 to .*, got 1000"),
        (prompts(), {"stop": -1}, "'stop' of generate.*got -1"),
        (prompts(), {"valid": torch.ones(3, 5)}, "'valid' must be bool"),
        (prompts(), {"valid": torch.ones(3, 4).bool()}, r"\(3, 5\), got torch.bool of shape \(3, 4\)"),
        (
            prompts(),
            {"valid": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1] * 5]).bool()},
            "Row 1 of the prompt ends in padding",
        ),
    ],
)
def test_bad_input(ids, settings, message):
    with pytest.raises(UsageError, match=message):
        generate(model(), ids, **{"new_tokens": 3, **settings})
