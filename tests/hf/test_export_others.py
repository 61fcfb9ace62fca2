"""Checkpoints that do not turn: a longer table is plain, a stretched bias needs our code, and each says so."""

import pytest
import torch
import transformers as tf
from tiny import VOCAB, apart, ids, logits
from transformers import AutoModelForCausalLM

import lengthen
from lengthen.core import Refusal
from lengthen.hf import export, extend
from lengthen.hf.export import server_flags

TOKENS = {"vocab_size": VOCAB, "initializer_range": 0.2, "bos_token_id": None, "eos_token_id": None}


def gpt2():
    torch.manual_seed(0)
    return tf.GPT2LMHeadModel(tf.GPT2Config(n_embd=64, n_layer=2, n_head=4, n_positions=32, **TOKENS)).eval()


def bloom():
    torch.manual_seed(0)
    return tf.BloomForCausalLM(tf.BloomConfig(hidden_size=64, n_layer=2, n_head=4, **TOKENS)).eval()


def t5():
    torch.manual_seed(0)
    sizes = {
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 32,
        "num_layers": 2,
        "num_heads": 4,
        "vocab_size": VOCAB,
        "decoder_start_token_id": 0,
    }
    return tf.T5ForConditionalGeneration(tf.T5Config(**sizes)).eval()


def test_a_longer_table_is_in_the_weights_and_loads_plain(tmp_path):
    x = ids(60)
    with extend(gpt2(), "learned_interpolation:factor=2") as extension:
        expected = logits(extension.model, x)
        done = export(extension, tmp_path / "out")
        with pytest.raises(Refusal, match="plain already"):
            export(extension, tmp_path / "own", form="lengthen")
        assert all("serve the exported folder" in flags.why for flags in server_flags(extension))
    model = AutoModelForCausalLM.from_pretrained(done.folder).eval()
    assert done.plan.form == "vanilla" and model.config.max_position_embeddings == 64
    assert apart(logits(model, x), expected) < 1e-5


def test_stretched_slopes_open_as_they_were_bit_by_bit(tmp_path):
    x = ids(60)
    with extend(bloom(), "alibi_interpolation:factor=2", original=32) as extension:
        expected = logits(extension.model, x)
        done = export(extension, tmp_path / "out")
    assert done.plan.form == "lengthen" and torch.equal(logits(lengthen.load(done.folder)[0], x), expected)


def test_an_encoder_is_refused_because_nothing_would_open_it(tmp_path):
    with extend(t5(), "t5_interpolation:factor=2", original=32) as extension, pytest.raises(Refusal, match="has an encoder"):
        export(extension, tmp_path / "out")
    assert not list(tmp_path.iterdir())
