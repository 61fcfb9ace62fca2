"""extend() on Llama: against an independent float64 model, through its cache, padded, packed, generating, and back."""

import copy

import numpy as np
import pytest
import torch
from reference import causal, llama_logits
from tiny import TRAINED, apart, ids, in_chunks, llama, logits
from transformers import AutoModelForCausalLM, StaticCache

from lengthen.core import Beyond, Branch, FrequencyRule, PositionMap, Refusal, Scheme, UsageError, build, compose
from lengthen.hf import extend, own_scheme
from lengthen.methods.rope import Rotary
from lengthen.methods.window import Window

THETA = 10_000.0 ** (-np.arange(0, 16, 2) / 16)
EXACT = 1e-4
"""Units of the deviation: float32 through two layers; the first fault of a position is thousands of times as large."""


def self_extended(d, i, j):
    return d if d < 7 else i // 3 - j // 3 + 7 - 7 // 3


def dual_chunked(d, i, j):
    query = {0: i % 9, 1: min(9 + i % 9, 12)}.get(i // 9 - j // 9, 12)
    return query - j % 9


RULES = {
    "rope": lambda d, i, j: d,
    "window:tokens=9": lambda d, i, j: d if d < 9 else np.nan,
    "rerope:window=8": lambda d, i, j: min(d, 8),
    "leaky_rerope:window=8,factor=3": lambda d, i, j: d if d < 8 else 8 + (d - 8) / 3,
    "self_extend:window=7,group=3": self_extended,
    "dual_chunk:chunk=9,local=4": dual_chunked,
    "string:shift=10,local=3": lambda d, i, j: d if d < 10 else d - 7,
    "lm_infinite:sinks=3,window=8,limit=8": lambda d, i, j: d if d < 8 else 8 if j < 3 else np.nan,
    "streaming_llm:sinks=3,window=8": lambda d, i, j: d if d < 8 else min(i, 10) - j if j < 3 else np.nan,
    "self_extend:window=7,group=3+sinks:tokens=2,window=12": lambda d, i, j: (
        self_extended(d, i, j) if d < 12 or j < 2 else np.nan
    ),
}
"""What each scheme takes for the distance of key j from query i, d = i - j."""


def distances(rule, tokens):
    return np.array([[rule(i - j, i, j) if j <= i else np.nan for j in range(tokens)] for i in range(tokens)], dtype=float)


@pytest.fixture
def model():
    return llama()


@pytest.mark.parametrize("spec", RULES)
@pytest.mark.parametrize("tokens", [1, 8, 61])
def test_logits_of_an_independent_model(model, spec, tokens):
    x = ids(tokens, rows=1)
    extend(model, spec)
    expected = llama_logits(model, x[0], distances(RULES[spec], tokens), THETA)
    assert apart(logits(model, x)[0], expected) < EXACT


ROUTES = [("rope", r) for r in ("rotary", "turned", "raw")] + [
    (spec, r)
    for spec in ("dual_chunk:chunk=9,local=4", "string:shift=10,local=3", "streaming_llm:sinks=3,window=8")
    for r in ("turned", "raw")
]


@pytest.mark.parametrize(("spec", "route"), ROUTES)
def test_every_route_gives_the_logits_of_an_independent_model(model, spec, route):
    x = ids(61, rows=1)
    assert extend(model, spec, route=route).route == route
    assert apart(logits(model, x)[0], llama_logits(model, x[0], distances(RULES[spec], 61), THETA)) < EXACT


@pytest.mark.parametrize(("spec", "route"), [*ROUTES, ("self_extend:window=7,group=3", "raw"), ("rerope:window=8", "raw")])
def test_the_cache_in_chunks_and_padding_on_either_side(model, spec, route):
    extend(model, spec, route=route)
    x = ids(50)
    whole = logits(model, x)
    for chunks in ((1,), (5,), (7,), (20, 1, 7)):
        assert apart(in_chunks(model, x, chunks), whole) < EXACT
    mask = torch.ones_like(x)
    mask[1, :13] = 0
    alone = logits(model, x[1:, 13:])[0]
    assert apart(logits(model, x, attention_mask=mask)[1, 13:], alone) < EXACT
    assert apart(in_chunks(model, x, (20, 1, 7), mask)[1, 13:], alone) < EXACT
    assert apart(logits(model, x, attention_mask=mask.flip(1))[1, :37], logits(model, x[1:, :37])[0]) < EXACT


@pytest.mark.parametrize("spec", ["self_extend:window=7,group=3", "dual_chunk:chunk=9,local=4", "rope"])
@pytest.mark.parametrize("static", [False, True])
def test_generate_says_what_recomputing_says(model, spec, static):
    extend(model, spec)
    x = ids(40)
    mask = torch.ones_like(x)
    mask[1, :13], x[1, :13] = 0, 0
    cache = {"cache": StaticCache(model.config, max_cache_len=64)} if static else {}
    found = model.generate(x, attention_mask=mask, max_new_tokens=12, do_sample=False, **cache)
    for row, start in ((0, 0), (1, 13)):
        expected = x[row : row + 1, start:]
        for _ in range(12):
            expected = torch.cat((expected, logits(model, expected)[:, -1].argmax(-1, keepdim=True)), dim=1)
        assert torch.equal(found[row, start:], expected[0])


@pytest.mark.parametrize(
    ("spec", "tokens"),
    [
        ("self_extend:window=20,group=4", 20),
        ("rerope:window=20", 21),
        ("leaky_rerope:window=20", 21),
        ("dual_chunk:chunk=24,local=8", 32),
        ("string:shift=20,local=3", 20),
        ("lm_infinite:sinks=3,window=20,limit=20", 20),
        ("streaming_llm:sinks=3,window=20", 23),
    ],
)
def test_inside_the_window_the_model_says_what_it_said(model, spec, tokens):
    x = ids(60)
    before = logits(model, x)
    extend(model, spec)
    after = logits(model, x)
    assert apart(after[:, :tokens], before[:, :tokens]) < EXACT
    assert apart(after[:, tokens:], before[:, tokens:]) > 0.05


@pytest.mark.parametrize("spec", ["self_extend:window=7,group=3", "dual_chunk:chunk=9,local=4", "lm_infinite:window=8,limit=8"])
def test_gradients_of_all_weights_are_those_of_dense_attention(model, spec):
    found = []
    for backend in (None, "dense"):
        with extend(model, spec, backend=backend):
            model.zero_grad()
            model(ids(40), labels=ids(40), use_cache=False).loss.backward()
            found.append({name: p.grad.clone() for name, p in model.named_parameters()})
    for name, grad in found[0].items():
        torch.testing.assert_close(grad, found[1][name], rtol=1e-4, atol=1e-6, msg=name)


def state(model):
    return {
        "config": copy.deepcopy(model.config.to_dict()),
        "attention": model.config._attn_implementation,
        "modules": {name: (id(m), type(m)) for name, m in model.named_modules()},
        "attributes": {name: sorted(m.__dict__) for name, m in model.named_modules()},
        "hooks": [len(m._forward_pre_hooks) for m in model.modules()],
        "modes": [m.training for m in model.modules()],
        "weights": {name: (p.data_ptr(), p.clone()) for name, p in model.state_dict().items()},
    }


def assert_same(a, b):
    for name in set(a) - {"weights"}:
        assert a[name] == b[name], name
    assert a["weights"].keys() == b["weights"].keys()
    assert all(p == b["weights"][n][0] and torch.equal(t, b["weights"][n][1]) for n, (p, t) in a["weights"].items())


@pytest.mark.parametrize("spec", ["rope:base=40000.0", "dual_chunk:chunk=9,local=4", "self_extend:window=7,group=3"])
def test_restore_gives_the_model_back_bit_by_bit(model, spec):
    model.model.layers[0].train()
    before, said = state(model), logits(model.eval(), ids(40))
    before["modes"] = [m.training for m in model.modules()]
    extension = extend(model, spec)
    assert not torch.equal(logits(model, ids(40)), said)
    extension.restore()
    assert_same(state(model), before)
    assert torch.equal(logits(model, ids(40)), said)
    with pytest.raises(UsageError, match="restored already"):
        extension.restore()


def test_a_context_manager_restores_even_after_an_error(model):
    before = state(model)
    with pytest.raises(ZeroDivisionError), extend(model, "rerope:window=8") as extension:
        assert extension.layers == extension.turned == 2
        assert extension.gap < 1e-4
        assert "2 of 2 attention layers" in str(extension)
        raise ZeroDivisionError
    assert_same(state(model), before)


def test_extending_twice_is_refused_and_leaves_the_first(model):
    extend(model, "rerope:window=8")
    said = logits(model, ids(40))
    with pytest.raises(UsageError, match="extended already"):
        extend(model, "self_extend")
    assert torch.equal(logits(model, ids(40)), said)


class Stretched(FrequencyRule):
    """Some static rule: theta_i / (1 + i), and a multiplier."""

    mscale = 1.1

    def inv_freq(self, dim):
        return 10_000.0 ** (-np.arange(0, dim, 2) / dim) / (1 + np.arange(dim // 2))


@pytest.mark.parametrize("route", ["rotary", "turned", "raw"])
def test_a_frequency_rule_with_a_multiplier(model, route):
    x = ids(61, rows=1)
    extend(model, Scheme(rotation=Rotary(Stretched(), 16, interleaved=False)), route=route)
    expected = llama_logits(model, x[0], causal(61), Stretched().inv_freq(16), scale=1.1)
    assert apart(logits(model, x)[0], expected) < EXACT


def test_a_rule_and_branches_compose(model):
    x = ids(61, rows=1)
    rule = Scheme(rotation=Rotary(Stretched(), 16, interleaved=False))
    extend(model, compose(rule, build("dual_chunk:chunk=9,local=4")))
    rel = distances(RULES["dual_chunk:chunk=9,local=4"], 61)
    assert apart(logits(model, x)[0], llama_logits(model, x[0], rel, Stretched().inv_freq(16), scale=1.1)) < EXACT


def test_the_configuration_follows_and_a_saved_folder_loads_without_us(model, tmp_path):
    x = ids(60)
    scheme = Scheme(rotation=Rotary(Stretched(), 16, interleaved=False))
    extension = extend(model, scheme, tokens=4 * TRAINED)
    assert (model.config.max_position_embeddings, extension.tokens) == (4 * TRAINED, 4 * TRAINED)
    assert model.config.rope_parameters["rope_theta"] == 10_000.0
    model.save_pretrained(tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert apart(logits(plain, x), logits(model, x)) < EXACT
    extension.restore()
    assert model.config.max_position_embeddings == TRAINED


def test_base_pairing_and_share_come_from_the_checkpoint():
    model = llama(rope_parameters={"rope_type": "default", "rope_theta": 777.0})
    x = ids(60)
    before = logits(model, x)
    extend(model, "rope", route="raw")
    assert apart(logits(model, x), before) < EXACT


def test_packed_documents_equal_themselves_alone(model):
    extend(model, "self_extend:window=7,group=3")
    x = ids(50, rows=1)
    doc = (torch.arange(50) >= 23).long()[None]
    found = logits(model, x, doc=doc)[0]
    assert apart(found[:23], logits(model, x[:, :23])[0]) < EXACT
    assert apart(found[23:], logits(model, x[:, 23:])[0]) < EXACT
    with pytest.raises(UsageError, match="the documents of 40 tokens, and the cache and the input together hold 50"):
        logits(model, x, doc=doc[:, :40])


def test_gaps_in_positions_are_never_taken_for_documents(model):
    extend(model, "self_extend:window=7,group=3")
    x, pos = ids(30, rows=1), torch.arange(30)[None]
    assert torch.equal(logits(model, x, position_ids=pos), logits(model, x))
    with pytest.raises(Refusal, match="token 9 of row 0 is number 9 of its text, and position_ids says 59"):
        logits(model, x, position_ids=pos + 50 * (pos > 8))


def test_the_first_logits_do_not_depend_on_what_follows(model):
    for spec in RULES:
        with extend(model, spec):
            x = ids(60)
            assert apart(logits(model, x)[:, :20], logits(model, x[:, :20])) < EXACT


def test_a_mask_of_another_kind_is_refused_rather_than_ignored(model):
    extend(model, "self_extend:window=7,group=3")
    x = ids(10)
    with pytest.raises(UsageError, match="got a mask of type Tensor; without our mask function it would not be causal"):
        logits(model, x, attention_mask=torch.zeros(2, 1, 10, 10))
    with pytest.raises(UsageError, match=r"covers 4 tokens, .* hold 10"):
        logits(model, x, attention_mask=torch.ones(2, 4, dtype=torch.long))


def test_our_attention_without_extend_is_refused(model):
    model.set_attn_implementation("lengthen")
    with pytest.raises(UsageError, match=r"models that extend\(\) prepared"):
        logits(model, ids(10))


def test_another_attention_under_an_extension_is_refused(model):
    extend(model, "self_extend:window=7,group=3")
    model.set_attn_implementation("sdpa")
    with pytest.raises(UsageError, match="set to the attention 'sdpa'"):
        logits(model, ids(10))


def test_dropout_is_refused_when_it_would_act():
    model = llama(attention_dropout=0.5)
    extend(model, "self_extend:window=7,group=3")
    logits(model, ids(10))
    with pytest.raises(Refusal, match=r"no dropout, got 0\.5"):
        logits(model.train(), ids(10))


class ByTokens(PositionMap):
    """Positions that are token ids."""

    reads_tokens = True

    def forward(self, idx, tokens=None):
        return tokens


UNFIT = {
    "a target below the trained length": (dict(request="rope", tokens=16), "trained on 32 tokens, got a target of 16"),
    "a target that is no number": (dict(request="rope", tokens=0), "'tokens' of extend must be .*got 0"),
    "an unknown method": (dict(request="self_extent"), "Did you mean 'self_extend'"),
    "an unknown route": (dict(request="rope", route="rotry"), "Did you mean 'rotary'"),
    "a route that cannot be": (dict(request="rerope", route="rotary"), "cannot take the route 'rotary'"),
    "an unknown backend": (dict(request="rerope", backend="dens"), "Did you mean 'dense'"),
    "a layer type": (dict(request={"full_attention": "rope"}), "no layer type .*'full_attention'"),
    "another pairing": (dict(request=build("rope")), r"channels \(i, i \+ R/2\). Build it with interleaved=False"),
    "an embedding": (dict(request="sinusoidal"), "Sinusoidal changes embeddings"),
    "a stream": (dict(request="rope+fox"), "keeps a stream of its own"),
    "token ids in positions": (dict(request=Scheme(positions=ByTokens())), "ByTokens reads token ids"),
}


@pytest.mark.parametrize("what", UNFIT)
def test_what_cannot_be_is_refused_before_anything_is_touched(model, what):
    request, message = UNFIT[what]
    before = state(model)
    with pytest.raises((UsageError, Refusal), match=message):
        extend(model, **request)
    assert_same(state(model), before)


def test_a_checkpoint_that_is_scaled_already_keeps_its_frequencies_under_remapping_only():
    yarn = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 8}
    model = llama(rope_parameters=yarn)
    x = ids(60)
    before = logits(model, x)
    with extend(model, own_scheme(model), route="raw"):
        assert apart(logits(model, x), before) < EXACT
    with extend(model, "self_extend:window=6,group=2") as extension:
        assert extension.schemes[None].rotation.inv_freq == pytest.approx(model_frequencies(model, extension), rel=1e-6)
    with pytest.raises(UsageError, match=r"scaled already \(yarn\)"):
        extend(model, "rope")


def model_frequencies(model, extension):
    extension.restore()
    return model.model.rotary_emb.inv_freq.double().numpy()


@pytest.mark.parametrize("tokens", [20, 60])
def test_frequencies_that_depend_on_the_length_are_settled_once(tokens):
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "short_factor": [1.0] * 8,
        "long_factor": [float(1 + n) for n in range(8)],
        "factor": 2.0,
        "original_max_position_embeddings": 32,
    }
    model = llama(rope_parameters=rope, max_position_embeddings=64)
    with pytest.raises(UsageError, match=r"depend on the length of the text. Settle it: extend\(..., tokens=N\)"):
        extend(model, "window:tokens=64")
    extension = extend(model, "window:tokens=64", tokens=32)
    short = logits(model, ids(60))
    factor = np.arange(1, 9) if tokens > 32 else np.ones(8)
    extension = extension.at(max(tokens, 32))
    scale = (1 + np.log(2) / np.log(32)) ** 0.5
    expected = llama_logits(model, ids(60)[0], causal(60), THETA / factor, scale)
    assert apart(logits(model, ids(60))[0], expected) < EXACT
    assert (apart(logits(model, ids(60)), short) > 0.01) == (tokens > 32)


def test_branches_of_an_author_run_too(model):
    """Keys halved, queries doubled: positions nobody registered."""
    far = Branch(Beyond(6), lambda pos: 2 * pos, lambda pos: pos // 2)
    extend(model, compose(own_scheme(model), Scheme(branches=(Branch(Window(6)), far))))
    x = ids(30, rows=1)
    rel = distances(lambda d, i, j: d if d < 6 else 2 * i - j // 2, 30)
    assert apart(logits(model, x)[0], llama_logits(model, x[0], rel, THETA)) < EXACT
