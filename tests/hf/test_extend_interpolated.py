"""Checkpoints that do not turn: ALiBi's slopes, learned tables and T5's buckets, stretched."""

import copy

import numpy as np
import pytest
import torch
import transformers as tf
from test_extend import assert_same, state
from tiny import TRAINED, VOCAB, apart, ids, in_chunks, logits
from transformers.models.bloom import modeling_bloom
from transformers.models.falcon import modeling_falcon

from lengthen.core import Refusal, UsageError
from lengthen.hf import extend

EXACT = 1e-4
S = 2.0
SLOPES = {4: [1 / 4, 1 / 16, 1 / 64, 1 / 256], 6: [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]}
COMMON = {"vocab_size": VOCAB, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None, "initializer_range": 0.2}
LONE = {"new_decoder_architecture": False, "multi_query": False, "parallel_attn": False}


def made(config, model, **sizes):
    torch.manual_seed(0)
    return model(config(**{**COMMON, **sizes})).eval()


def bloom(heads=6):
    return made(tf.BloomConfig, tf.BloomForCausalLM, hidden_size=16 * heads, n_layer=2, n_head=heads)


def mpt(heads=6, length=TRAINED):
    return made(tf.MptConfig, tf.MptForCausalLM, d_model=16 * heads, n_layers=2, n_heads=heads, max_seq_len=length)


def falcon(heads=4, **more):
    sizes = {
        "hidden_size": 16 * heads,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "max_position_embeddings": TRAINED,
    }
    return made(tf.FalconConfig, tf.FalconForCausalLM, alibi=True, **LONE, **{**sizes, **more})


def gpt2(length=TRAINED):
    return made(tf.GPT2Config, tf.GPT2LMHeadModel, n_embd=64, n_layer=2, n_head=4, n_positions=length)


def opt(length=TRAINED):
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 96, "init_std": 0.2}
    return made(tf.OPTConfig, tf.OPTForCausalLM, max_position_embeddings=length, **sizes)


def t5():
    sizes = {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4}
    more = {"vocab_size": VOCAB, "decoder_start_token_id": 0, "tie_word_embeddings": False}
    torch.manual_seed(0)
    return tf.T5ForConditionalGeneration(tf.T5Config(**sizes, **more)).eval()


def biases(heads, keys, factor):
    """[H, K]: -slope / factor times the distance from the last key."""
    return -torch.tensor(SLOPES[heads], dtype=torch.float64)[:, None] / factor * torch.arange(keys - 1, -1, -1)


def exact(model, heads, monkeypatch, x, factor=S):
    """transformers' own layers in float64 with slopes divided by the factor."""
    model = copy.deepcopy(model).double()
    kind = model.config.model_type
    if kind == "bloom":
        slopes = torch.tensor(SLOPES[heads], dtype=torch.float64) / factor
        monkeypatch.setattr(modeling_bloom, "_get_alibi_slopes", lambda *_: slopes)
    elif kind == "mpt":
        model.config.max_seq_len = 64
        model.transformer.build_mpt_alibi_tensor = lambda *_, **__: biases(heads, 64, factor)[:, None]
    else:
        alibi = lambda mask, *_, **__: biases(heads, mask.shape[1], factor).repeat(len(mask), 1)[:, None]
        monkeypatch.setattr(modeling_falcon, "build_alibi_tensor", alibi)
    return logits(model, x)


ALIBI = [(bloom, 4), (bloom, 6), (mpt, 4), (mpt, 6), (falcon, 4)]


@pytest.mark.parametrize(("build", "heads"), ALIBI)
def test_alibi_with_slopes_divided_through_chunks_and_padding(build, heads, monkeypatch):
    model, x = build(heads), ids(60)
    with monkeypatch.context() as patch:
        expected = exact(model, heads, patch, x)
    extension = extend(model, "alibi_interpolation:factor=2", original=TRAINED)
    assert (extension.route, extension.tokens, extension.layers) == ("bias", 64, 2)
    assert apart(logits(model, x), expected) < EXACT
    for chunks in ((1,), (5,), (7,), (20, 1, 7)):
        assert apart(in_chunks(model, x, chunks), expected) < EXACT
    mask = torch.ones_like(x)
    mask[1, :13] = 0
    alone = logits(model, x[1:, 13:])[0]
    assert apart(logits(model, x, attention_mask=mask)[1, 13:], alone) < EXACT
    assert apart(in_chunks(model, x, (20, 1, 7), mask)[1, 13:], alone) < EXACT


@pytest.mark.parametrize(("build", "heads"), ALIBI)
def test_alibi_by_a_factor_of_one_is_the_checkpoint_and_comes_back_bit_by_bit(build, heads):
    model, x = build(heads), ids(30)
    before, said = state(model), logits(model, x)
    with extend(model, "alibi_interpolation", original=TRAINED, tokens=TRAINED) as extension:
        assert apart(logits(model, x), said) < EXACT
        assert extension.gap < EXACT
    extension = extend(model, "alibi_interpolation:factor=4", original=TRAINED)
    assert apart(logits(model, x), said) > 0.05
    extension.restore()
    assert_same(state(model), before)
    assert torch.equal(logits(model, x), said)


def interpolated(table, factor):
    """[L, C] -> [s L, C], channel by channel."""
    table, at = table.double().numpy(), np.arange(round(factor * len(table))) / factor
    return np.stack([np.interp(at, np.arange(len(table)), column) for column in table.T], axis=1)


TABLES = {"gpt2": (gpt2, "transformer.wpe.weight", 0), "opt": (opt, "model.decoder.embed_positions.weight", 2)}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("factor", [2.0, 1.5, 4.0])
def test_a_table_read_between_its_rows_is_a_longer_plain_model(name, factor, tmp_path):
    build, entry, spare = TABLES[name]
    model, x = build(), ids(40)
    weights = dict(model.state_dict())
    table = weights[entry]
    longer = np.concatenate((table[:spare].double().numpy(), interpolated(table[spare:], factor)))
    weights[entry] = torch.from_numpy(longer).float()
    plain = build(round(factor * TRAINED))
    plain.load_state_dict(weights)
    before, said = state(model), logits(model, x[:, :30])
    extension = extend(model, f"learned_interpolation:factor={factor}")
    assert (extension.route, extension.tokens) == ("table", round(factor * TRAINED))
    assert apart(logits(model, x), logits(plain, x)) < EXACT
    assert apart(in_chunks(model, x, (20, 1, 7)), logits(plain, x)) < EXACT
    extension.restore()
    assert_same(state(model), before)
    assert torch.equal(logits(model, x[:, :30]), said)
    extend(model, f"learned_interpolation:factor={factor}")
    model.save_pretrained(tmp_path)
    assert torch.equal(logits(tf.AutoModelForCausalLM.from_pretrained(tmp_path).eval(), x), logits(model, x))


@pytest.mark.parametrize("name", TABLES)
def test_rows_of_a_table_count_their_own_tokens(name):
    model, x = TABLES[name][0](), ids(50)
    extend(model, "learned_interpolation:factor=2")
    mask = torch.ones_like(x)
    mask[1, :13] = 0
    alone = logits(model, x[1:, 13:])[0]
    assert apart(logits(model, x, attention_mask=mask)[1, 13:], alone) < EXACT
    assert apart(in_chunks(model, x, (20, 1, 7), mask)[1, 13:], alone) < EXACT


def slowed_buckets(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    """T5's rule at distances divided by S, in float64."""
    n, found = -relative_position.double().numpy() / S, 0
    if bidirectional:
        num_buckets //= 2
        found = (n < 0) * num_buckets
        n = np.abs(n)
    n, least = np.maximum(n, 0), num_buckets // 2
    large = least + np.log(np.maximum(n, least) / least) / np.log(max_distance / least) * (num_buckets - least)
    return torch.from_numpy(
        found + np.where(n < least, np.floor(n), np.minimum(np.floor(large + 1e-9), num_buckets - 1))
    ).long()


@torch.no_grad()
def translated(model, x, y):
    return model(input_ids=x, decoder_input_ids=y, use_cache=False)[0].double()


def test_t5_buckets_in_encoder_and_decoder_are_those_of_shorter_distances():
    model, x, y = t5(), ids(150), ids(150, seed=2)
    reference = copy.deepcopy(model).double()
    for stack in (reference.encoder, reference.decoder):
        stack.block[0].layer[0].SelfAttention._relative_position_bucket = slowed_buckets
    before, said = state(model), translated(model, x, y)
    extension = extend(model, "t5_interpolation:factor=2", original=512)
    assert (extension.route, extension.tokens, extension.layers) == ("buckets", 1024, 2)
    assert apart(translated(model, x, y), translated(reference, x, y)) < EXACT
    assert apart(translated(model, x, y), said) > 0.01
    mask = torch.ones_like(x)
    mask[1, :40] = 0
    cached, plain = (
        model.generate(x, attention_mask=mask, max_new_tokens=12, do_sample=False, use_cache=use) for use in (True, False)
    )
    assert torch.equal(cached, plain)
    extension.restore()
    assert_same(state(model), before)
    assert torch.equal(translated(model, x, y), said)


def test_caches_are_marked_here_too():
    model, x = bloom(), ids(40)
    cache = model(x[:, :20], use_cache=True).cache
    extend(model, "alibi_interpolation:factor=2", original=TRAINED)
    with pytest.raises(Refusal, match="holds 20 tokens that were read before"):
        model(x[:, 20:], cache=cache)
    with pytest.raises(UsageError, match="extended already"):
        extend(model, "alibi_interpolation:factor=2", original=TRAINED)


def bert():
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
    return tf.BertForMaskedLM(tf.BertConfig(vocab_size=VOCAB, max_position_embeddings=TRAINED, **sizes)).eval()


def llama():
    from tiny import llama

    return llama()


UNFIT = {
    "slopes of a rotary model": (llama, dict(request="alibi_interpolation"), "its biases are known for bloom, mpt, falcon"),
    "slopes of a rotary falcon": (lambda: falcon(alibi=False), dict(request="alibi_interpolation"), "has no ALiBi"),
    "slopes that are added twice": (
        lambda: falcon(attn_implementation="eager"),
        dict(request="alibi_interpolation"),
        "only under the attention 'sdpa' does a Falcon add its bias once",
    ),
    "no trained length": (bloom, dict(request="alibi_interpolation:factor=2"), r"does not say how long .* original=2048"),
    "a target below": (mpt, dict(request="alibi_interpolation", tokens=16), "trained on 32 tokens, got a target of 16"),
    "a factor below one": (mpt, dict(request="alibi_interpolation:factor=0.5"), "at least 1, got 0.5"),
    "rows": (mpt, dict(request="alibi_interpolation", tokens=[32, 64]), "nothing turns here"),
    "company": (mpt, dict(request="alibi_interpolation+window"), "stands alone"),
    "a table of a rotary model": (llama, dict(request="learned_interpolation"), "No table of LlamaForCausalLM"),
    "an encoder": (bert, dict(request="learned_interpolation"), "an encoder. Only decoders"),
    "buckets of another": (gpt2, dict(request="t5_interpolation"), "known in t5, mt5, umt5, and this is a gpt2"),
    "rotations of a table": (gpt2, dict(request="yarn"), "learned table or T5's buckets take 'alibi_interpolation'"),
    "no model": (
        lambda: torch.nn.Linear(2, 2),
        dict(request="alibi_interpolation"),
        "takes a model of transformers, got Linear",
    ),
}


@pytest.mark.parametrize("what", UNFIT)
def test_what_cannot_be_is_refused_before_anything_is_touched(what):
    build, request, message = UNFIT[what]
    if what == "slopes of a rotary falcon":
        model = made(
            tf.FalconConfig, tf.FalconForCausalLM, alibi=False, hidden_size=64, num_hidden_layers=2, num_attention_heads=4
        )
    else:
        model = build()
    before = state(model) if what != "no model" else None
    with pytest.raises((Refusal, UsageError), match=message):
        extend(model, **request)
    assert before is None or assert_same(state(model), before) is None


def test_an_eager_falcon_does_add_its_bias_twice():
    """transformers 5.24: once to the scores, and once in the mask; which of the two a checkpoint means is the reason to refuse."""
    once, twice = falcon(), falcon(attn_implementation="eager")
    twice.load_state_dict(once.state_dict())
    assert apart(logits(twice, ids(30)), logits(once, ids(30))) > 0.05
