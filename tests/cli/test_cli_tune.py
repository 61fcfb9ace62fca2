"""`lengthen tune` as a person runs it, on a decoder that `compare` could have left and on a tiny checkpoint."""

import json

import pytest
import torch
import transformers as tf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from typer.testing import CliRunner

from lengthen.cli.app import app
from lengthen.core import UsageError
from lengthen.data import ByteTokenizer
from lengthen.hf import load
from lengthen.models import DecoderConfig, make_decoder
from lengthen.models.store import load_decoder, save_decoder


def run(*args: object) -> dict:
    done = CliRunner().invoke(app, ["tune", *map(str, args), "--json"], catch_exceptions=False)
    return json.loads(done.stdout[done.stdout.index("{") :])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune")
    (folder / "text.txt").write_text(" ".join(map(str, range(900))))
    model = make_decoder(DecoderConfig(vocab=256, layers=1, heads=2, width=16), "rope", 16)
    save_decoder(folder / "run" / "model", model, ["rope"], 16, 0)
    ByteTokenizer().save(folder / "run" / "tokenizer")
    torch.manual_seed(0)
    sizes = {"vocab_size": 256, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    tf.LlamaForCausalLM(tf.LlamaConfig(**sizes, max_position_embeddings=16)).save_pretrained(folder / "llama")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({letter: n for n, letter in enumerate(alphabet)}, []))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tf.PreTrainedTokenizerFast(tokenizer_object=inner).save_pretrained(folder / "llama")
    return folder


def test_a_decoder_of_ours_is_tuned_and_saved_under_its_new_spec(place, tmp_path):
    about = run(
        place / "run",
        "--target",
        "4x",
        "--method",
        "pi:factor=4",
        "--steps",
        4,
        "--data",
        place / "text.txt",
        "--out",
        tmp_path / "o",
    )
    assert about["status"] == "done" and about["steps"] == 4
    config = json.loads((tmp_path / "o" / "model" / "config.json").read_text())
    assert (
        config["specs"] == ["pi:factor=4"]
        and load_decoder(tmp_path / "o" / "model")(torch.zeros(1, 64).long()).isfinite().all()
    )
    assert (tmp_path / "o" / "tokenizer").is_dir()


@pytest.mark.parametrize("way, rope", [("pose", "yarn"), ("s2", "yarn"), ("full", "yarn"), ("drope", None)])
def test_a_checkpoint_is_tuned_and_exported(place, tmp_path, way, rope):
    method = ["--method", rope] if rope is not None else []
    about = run(
        place / "llama", "--target", 64, *method, "--way", way, "--steps", 3, "--batch", 2, "--data", place / "text.txt",
        "--out", tmp_path / "o", "--lora", 2, "--mix", 0.3,
    )  # fmt: skip
    assert about["status"] == "done"
    config = json.loads((tmp_path / "o" / "model" / "config.json").read_text())
    if rope is not None:
        assert config["rope_parameters"]["rope_type"] == rope and config["max_position_embeddings"] == 64
        plain = tf.AutoModelForCausalLM.from_pretrained(tmp_path / "o" / "model")
        assert plain(torch.zeros(1, 64).long()).logits.isfinite().all()
    else:
        opened, _ = load(tmp_path / "o" / "model")
        assert opened(torch.zeros(1, 64).long()).logits.isfinite().all()


def test_a_search_resumes_and_gives_a_spec(place, tmp_path):
    given = [
        place / "llama",
        "--target",
        256,
        "--search",
        "longrope2",
        "--rows",
        1,
        "--data",
        place / "text.txt",
        "--out",
        tmp_path / "s",
    ]
    first = run(*given, "--scores", 2)
    second = run(*given, "--scores", 4, "--resume")
    assert (first["scores"], second["scores"]) == (2, 4) and second["perplexity"] <= first["perplexity"]
    assert second["spec"].startswith("longrope:factor=16,long_factor=(")


def test_what_cannot_be_is_refused_before_a_model_is_loaded(place, tmp_path):
    for given, word in (
        (["nowhere/model", "--way", "posee"], "'pose'"),
        (["nowhere/model", "--search", "longrope3"], "longrope2"),
        ([place / "llama", "--data", place / "text.txt", "--out", tmp_path / "x", "--target", "8"], "16"),
    ):
        with pytest.raises(UsageError, match=word):
            run(*given, *([] if "--target" in given else ["--target", "4x"]))


def test_help_has_examples():
    page = CliRunner().invoke(app, ["tune", "--help"]).output
    assert "Examples" in page and page.count("lengthen tune") >= 3
