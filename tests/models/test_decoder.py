import numpy as np
import pytest
import torch

from lengthen.core import Causal, Pattern, Scheme, UsageError, build
from lengthen.models import PRESETS, Decoder, DecoderConfig, make_decoder, preset
from lengthen.models.swiglu import SwiGLU

SMALL = DecoderConfig(vocab=11, layers=2, heads=4, width=16)


def tokens(batch=2, length=7, vocab=11):
    return torch.randint(vocab, (batch, length), generator=torch.Generator().manual_seed(5))


def rms(x, gain):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * gain


def written_out(model, ids, groups, qk_norm):
    """The decoder without positions in numpy float64, from the weights: pre-norm attention and SwiGLU, causal."""
    w = {name: p.detach().numpy() for name, p in model.named_parameters()}
    heads, size = model.config.heads, model.config.head_channels
    x = w["embed.weight"][ids] * np.sqrt(model.config.width)
    length = ids.shape[1]
    future = np.triu(np.ones((length, length), dtype=bool), 1)
    for n in range(model.config.layers):
        at = lambda name, n=n: w[f"blocks.{n}.{name}"]
        y = rms(x, at("norms.0.gain")) @ at("attention.qkv.weight").T
        q, k, v = np.split(y.reshape(*ids.shape, -1, size), [heads, heads + groups], axis=2)
        if qk_norm:
            q, k = rms(q, at("attention.norms.0.gain")), rms(k, at("attention.norms.1.gain"))
        out = np.zeros_like(q)
        for h in range(heads):
            g = h * groups // heads
            scores = np.where(future, -np.inf, q[:, :, h] @ k[:, :, g].transpose(0, 2, 1) / np.sqrt(size))
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, :, h] = weights / weights.sum(-1, keepdims=True) @ v[:, :, g]
        x = x + out.reshape(*ids.shape, -1) @ at("attention.out.weight").T
        gate, up = np.split(rms(x, at("norms.1.gain")) @ at("mlp.gate_up.weight").T, 2, axis=-1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ at("mlp.down.weight").T
    head = w["embed.weight"] if model.config.tied else w["head.weight"]
    return rms(x, w["norm.gain"]) @ head.T


@pytest.mark.parametrize(
    "changes", [{}, {"groups": 2}, {"groups": 1}, {"qk_norm": True}, {"tied": False}, {"head_size": 6, "hidden": 5}]
)
def test_forward_is_the_architecture_written_out(changes):
    config = DecoderConfig(**{"vocab": 11, "layers": 2, "heads": 4, "width": 16, **changes})
    model = Decoder(config, Scheme(), seed=3).double()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("gain"):
                p.uniform_(0.5, 1.5)
    ids = tokens()
    expected = written_out(model, ids.numpy(), config.kv_heads, config.qk_norm)
    np.testing.assert_allclose(model(ids).detach().numpy(), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rms_norm_and_its_gradient(dtype):
    x = torch.randn(3, 5, 8, dtype=torch.float64).to(dtype).requires_grad_()
    norm = Decoder(DecoderConfig(width=8, heads=2), Scheme()).norm.to(dtype)
    with torch.no_grad():
        norm.gain.uniform_(0.5, 1.5)
    up = torch.randn(3, 5, 8, dtype=torch.float64).to(dtype)
    mine = [norm(x), *torch.autograd.grad(norm(x), [x, norm.gain], up)]
    exact, gain = x.detach().double().requires_grad_(), norm.gain.detach().double().requires_grad_()
    out = exact / (exact.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain
    tol = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 4e-2}[dtype]
    for a, b in zip(mine, [out, *torch.autograd.grad(out, [exact, gain], up.double())], strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a.double(), b, rtol=tol, atol=tol)


def test_swiglu_and_its_gradient():
    layer, x = SwiGLU(6, 5).double(), torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    wide, down = layer.gate_up.weight, layer.down.weight
    gate, up = x @ wide[:5].T, x @ wide[5:].T
    expected = (gate / (1 + torch.exp(-gate)) * up) @ down.T
    grad = torch.randn_like(expected)
    for a, b in zip(
        torch.autograd.grad(layer(x), [x, wide, down], grad), torch.autograd.grad(expected, [x, wide, down], grad), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(layer(x), expected, rtol=1e-12, atol=1e-12)


def test_weights_depend_on_the_seed_and_never_on_the_scheme():
    models = {
        spec: make_decoder(SMALL, spec, train_length=8, seed=4) for spec in ("nope", "rope", "t5", "fire", "learned", "shaw")
    }
    own = {s: {n: p for n, p in m.named_parameters() if ".scheme." not in n} for s, m in models.items()}
    for spec in models:
        assert own[spec].keys() == own["nope"].keys()
        assert all(torch.equal(p, own["nope"][n]) for n, p in own[spec].items())
    other = make_decoder(SMALL, "nope", train_length=8, seed=5)
    assert not torch.equal(other.embed.weight, models["nope"].embed.weight)


def test_making_a_model_leaves_the_global_generator_alone():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    make_decoder(SMALL, "t5", train_length=8)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("name", "vocab", "million"),
    [("tiny", 256, 0.117), ("mini", 256, 0.826), ("small", 256, 4.8), ("medium", 256, 25.4), ("base", 50_257, 123.7)],
)
def test_presets_have_the_sizes_that_they_are_named_for(name, vocab, million):
    c = preset(name, vocab=vocab)
    layer = 4 * c.width * c.width + 3 * c.width * c.hidden_channels + 2 * c.width
    count = c.vocab * c.width + c.layers * layer + c.width
    assert count == pytest.approx(million * 1e6, rel=0.01)
    if count < 10e6:
        assert sum(p.numel() for p in Decoder(c, Scheme()).parameters()) == count


def test_tied_output_is_the_embedding():
    tied, untied = Decoder(SMALL, Scheme()), Decoder(preset("tiny", tied=False), Scheme())
    assert tied.head.weight is tied.embed.weight
    assert untied.head.weight is not untied.embed.weight
    count = sum(p.numel() for p in untied.parameters())
    assert count - sum(p.numel() for p in Decoder(preset("tiny"), Scheme()).parameters()) == 256 * 64


def test_dropout_drops_a_share_of_the_branches_in_training_only():
    model = Decoder(DecoderConfig(vocab=11, layers=1, heads=2, width=64, dropout=0.25), Scheme())
    kept = []
    model.blocks[0].dropout.register_forward_hook(lambda m, args, out: kept.append((args[0], out)))
    torch.manual_seed(0)
    model.train()(tokens(8, 40))
    for given, out in kept:
        zero = (out == 0).double().mean().item()
        assert zero == pytest.approx(0.25, abs=0.02)
        torch.testing.assert_close(out[out != 0], given[out != 0] / 0.75)
    kept.clear()
    model.eval()(tokens(8, 40))
    assert all(torch.equal(given, out) for given, out in kept)


def test_layers_take_their_own_schemes():
    rope, alibi = build("rope", SMALL.shape(8)), build("alibi", SMALL.shape(8))
    model = Decoder(SMALL, [rope, alibi])
    assert model.schemes == [rope, alibi]
    repeated = make_decoder(preset("mini"), ["rope", "t5"], train_length=8)
    assert repeated.schemes[0] is repeated.schemes[2] and repeated.schemes[1] is repeated.schemes[3]
    assert sum(".scheme." in n for n, _ in repeated.named_parameters()) == 1


class Itself(Pattern):
    """A query sees only itself."""

    causal = True

    def __call__(self, i, j):
        return i == j


def test_under_another_pattern_weights_are_shared_and_the_model_stays():
    model = make_decoder(SMALL, "t5", train_length=8)
    ids = tokens()
    before = model(ids)
    alone = model.under(lambda scheme: scheme.with_pattern(Itself()))
    assert {id(p) for p in alone.parameters()} == {id(p) for p in model.parameters()}
    # Seeing only itself, a token's logits do not depend on where it stands or on what else is there.
    torch.testing.assert_close(alone(ids)[:, 3:4], alone(ids[:, 3:4]))
    assert torch.equal(model(ids), before)
    assert all(isinstance(s.pattern, Causal) for s in model.schemes)
    alone(ids).sum().backward()
    assert model.embed.weight.grad is not None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"heads": 4, "groups": 3}, "4 query heads cannot share 3 key/value heads evenly"),
        ({"heads": 3, "width": 64}, "A width of 64 does not divide into 3 heads"),
        ({"layers": 0}, "'layers' of DecoderConfig must be a whole number of layers, at least 1, got 0"),
        ({"width": -8}, "at least 1, got -8"),
        ({"head_size": 0}, "'head_size' of DecoderConfig"),
        ({"dropout": 1.0}, r"must lie in \[0, 1\), got 1.0"),
    ],
)
def test_impossible_sizes_are_refused_with_both_numbers(fields, message):
    with pytest.raises(UsageError, match=message):
        DecoderConfig(**fields)


def test_schemes_that_do_not_fit_are_refused():
    with pytest.raises(UsageError, match="has 2 layers and got 3 schemes"):
        Decoder(SMALL, [Scheme()] * 3)
    with pytest.raises(UsageError, match="turns 16 channels, but a head has 4"):
        Decoder(SMALL, build("rope", preset("tiny").shape(8)))
    with pytest.raises(UsageError, match="Did you mean 'tiny'"):
        preset("tinny")


def test_every_preset_is_a_valid_config_with_even_heads():
    assert all(c.head_channels % 2 == 0 for c in PRESETS.values())


@pytest.mark.parametrize(
    ("ids", "how", "message"),
    [
        (torch.zeros(3, dtype=torch.long), {}, r"int64 \[B, T\].*\[3\]"),
        (torch.zeros(1, 3), {}, "float32"),
        (torch.zeros(1, 0, dtype=torch.long), {}, "at least one token"),
        (torch.tensor([[0, 10**6]]), {}, "hold 0 to 1000000, and the vocabulary is 0 to"),
        (torch.zeros(1, 3, dtype=torch.long), {"valid": torch.ones(1, 3)}, "'valid' must be torch.bool"),
        (
            torch.zeros(1, 3, dtype=torch.long),
            {"doc": torch.zeros(1, 4, dtype=torch.long)},
            r"'doc' must be .*\[1, 3\]; got .*\[1, 4\]",
        ),
    ],
)
def test_inputs_that_cannot_be_are_refused_before_the_cache_is_touched(ids, how, message):
    model = Decoder(SMALL, Scheme())
    cache = model.new_cache()
    with pytest.raises(UsageError, match=message):
        model.hidden(ids, cache=cache, **how)
    assert cache.length == 0


def test_a_cache_of_another_model_is_refused():
    ids = torch.zeros(1, 3, dtype=torch.long)
    with pytest.raises(UsageError, match="another model"):
        Decoder(SMALL, Scheme()).hidden(ids, cache=Decoder(SMALL, Scheme()).new_cache())
