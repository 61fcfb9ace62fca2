"""What is read of one passage, against plain logits of transformers."""

import math

import numpy as np
import pytest
import torch
import transformers as tf
from wordy import TARGET, TOKENS, TRAINED, llama, tokenizer, write_texts

from lengthen.advise.candidates import AS_IS, Candidate
from lengthen.advise.forward import cache_bytes, filled, fork, head, prefill, proceed
from lengthen.advise.passages import passages
from lengthen.advise.reading import BINS
from lengthen.advise.trial import try_out
from lengthen.data import load_corpus
from lengthen.hf import extend

FIRST = 5


@pytest.fixture
def passage(tmp_path):
    return passages(load_corpus(str(write_texts(tmp_path / "t"))), tokenizer(), TRAINED, TARGET, 1)[0]


def read(model, spec, passage):
    lengths = {"trained": TRAINED, "target": TARGET, "first": FIRST}
    trial = try_out(model, Candidate(spec, "no"), passage, 0, **lengths)
    assert trial.failure is None
    return trial.reading


def plain(model, ids) -> np.ndarray:
    """float64 [T, V] log-probabilities by the model's own forward."""
    with torch.no_grad():
        return model(torch.as_tensor(ids)[None], use_cache=False).logits[0].double().log_softmax(-1).numpy()


def scaled(**rope) -> tf.PreTrainedModel:
    """The same weights under a scaling that transformers computes itself."""
    return llama(rope_parameters={"rope_theta": 10_000.0, **rope})


REFERENCES = {
    AS_IS: lambda: llama(),
    "yarn": lambda: scaled(rope_type="yarn", factor=TARGET / TRAINED, original_max_position_embeddings=TRAINED),
    "pi": lambda: scaled(rope_type="linear", factor=TARGET / TRAINED),
}


@pytest.mark.parametrize("spec", REFERENCES)
def test_bins_hold_the_losses_of_scored_tokens(spec, passage):
    reading = read(llama(), spec, passage)
    log_p = plain(REFERENCES[spec](), passage.ids)
    nats, tokens = [0.0] * len(reading.nats), [0] * len(reading.nats)
    needles = sum(len(s) for s in passage.needles.sentences)
    for position in range(FIRST, len(passage.ids)):
        if passage.scored[position - 1]:
            place = position * BINS // TRAINED
            nats[place] -= log_p[position - 1, passage.ids[position]]
            tokens[place] += 1
    assert list(reading.tokens) == tokens and sum(tokens) == len(passage.ids) - FIRST - needles
    assert np.allclose(reading.nats, nats, rtol=0, atol=2e-4)


@pytest.mark.parametrize("spec", REFERENCES)
def test_answers_are_those_of_each_question_alone_behind_the_text(spec, passage):
    reading, model = read(llama(), spec, passage), REFERENCES[spec]()
    assert len(reading.answers) == len(passage.needles) >= 2
    for n, answer in enumerate(reading.answers):
        log_p = plain(model, [*passage.ids, *passage.needles.questions[n]])[-1, list(passage.needles.choices)]
        nats = np.logaddexp.reduce(log_p) - log_p[n]
        assert math.isclose(answer.nats, nats, abs_tol=2e-4)
        assert answer.right == (int(log_p.argmax()) == n)
        assert answer.distance == passage.distances[n]


def test_the_model_is_as_before(passage):
    model = llama()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    out = plain(model, passage.ids)
    for spec in ("yarn", "self_extend:group=8", "p_rope:wrong=1"):
        try_out(model, Candidate(spec, "no"), passage, 0, trained=TRAINED, target=TARGET, first=FIRST)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert np.array_equal(plain(model, passage.ids), out)


def small(config: type, model: type, **sizes) -> tf.PreTrainedModel:
    torch.manual_seed(0)
    given = {
        "vocab_size": 50,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": 0.3,
        "pad_token_id": 0,
    }
    return model(config(**{**given, **sizes})).eval()


@pytest.mark.parametrize(
    "made",
    [
        lambda: small(tf.CohereConfig, tf.CohereForCausalLM, logit_scale=0.25),
        lambda: small(tf.Gemma2Config, tf.Gemma2ForCausalLM, head_dim=16, final_logit_softcapping=2.0),
        lambda: small(tf.GPTNeoXConfig, tf.GPTNeoXForCausalLM),
        lambda: small(tf.GPT2Config, tf.GPT2LMHeadModel),
        lambda: small(tf.MixtralConfig, tf.MixtralForCausalLM, num_local_experts=4),
    ],
    ids=["scaled", "capped", "embed_out", "cross_attentions", "router_logits"],
)
@torch.no_grad()
def test_logits_by_blocks_are_the_models_own_whatever_its_head_does(made):
    model, ids = made(), torch.arange(1, 40)[None]
    whole = model(ids, use_cache=False).logits[0]
    read = prefill(model, ids)
    blocks = torch.cat([head(model, part, read.kind) for part in read.hidden.split(7, dim=1)])
    assert torch.allclose(blocks, whole.float(), rtol=0, atol=1e-5)
    assert model(ids, use_cache=False).logits.equal(whole[None])


@torch.no_grad()
def test_a_forked_cache_grows_and_the_first_one_stays():
    model, ids = llama(), torch.arange(2, 30)[None]
    cache = prefill(model, ids).cache
    kept = [layer.keys.clone() for layer in cache.layers]
    one, two = (proceed(model, fork(cache), torch.tensor([[n]])) for n in (3, 4))
    again = proceed(model, fork(cache), torch.tensor([[3]]))
    assert torch.equal(one, again) and not torch.equal(one, two)
    assert all(torch.equal(a, layer.keys) for a, layer in zip(kept, cache.layers, strict=True))


@torch.no_grad()
@pytest.mark.parametrize("window", [None, 16])
def test_cache_size_is_exact(window):
    """2 tensors, 2 groups of 8 channels, 4 bytes, per layer and token; a sliding layer keeps window - 1 tokens."""
    model = small(tf.MistralConfig, tf.MistralForCausalLM, sliding_window=window, vocab_size=len(TOKENS))
    cache = prefill(model, torch.ones(1, 40, dtype=torch.long)).cache
    each = 2 * 2 * 8 * 4
    assert cache_bytes(cache, 40, 100) == 2 * each * (100 if window is None else window - 1)


@torch.no_grad()
@pytest.mark.parametrize("window", [None, 16])
def test_a_filled_cache_is_as_one_that_was_read(window):
    """A text of one token over and over: values of the first layer do not depend on the position."""
    model = small(tf.MistralConfig, tf.MistralForCausalLM, sliding_window=window)
    one = torch.ones(1, 40, dtype=torch.long)
    read, made = prefill(model, one).cache, filled(model, 40)
    for a, b in zip(read.layers, made.layers, strict=True):
        assert a.keys.shape == b.keys.shape and a.get_seq_length() == b.get_seq_length() == 40
        assert a.get_mask_sizes(1) == b.get_mask_sizes(1)
    assert torch.allclose(read.layers[0].values, made.layers[0].values, atol=1e-6)
    assert proceed(model, made, one[:, :1]).isfinite().all()


@torch.no_grad()
def test_a_forgetful_cache_is_forked_whole():
    model, ids = llama(), torch.arange(2, 42)[None]
    with extend(model, "streaming_llm:window=12", tokens=TARGET) as e:
        cache = prefill(model, ids, cache=e.cache()).cache
        one = proceed(model, fork(cache), torch.tensor([[3]]))
        grown = fork(cache)
        assert torch.equal(one, proceed(model, grown, torch.tensor([[3]])))
        assert grown.tokens == 41 and cache.tokens == 40 and grown.layers[0].cache is grown
        assert torch.allclose(one, model(torch.cat((ids, torch.tensor([[3]])), 1), use_cache=False)[0][0, -1], atol=1e-4)


def test_progress_is_told_layer_by_layer():
    told = []
    with torch.no_grad():
        prefill(llama(num_hidden_layers=4), torch.ones(1, 8, dtype=torch.long), told.append)
    assert told == [0.25, 0.5, 0.75, 1.0]
