"""Methods that need our code: a folder that `load` opens as the extended model, bit by bit, and nothing else."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import FAMILIES, TRAINED, apart, ids, in_chunks, llama, logits
from transformers import AutoModelForCausalLM

import lengthen
from lengthen.core import Refusal, UsageError, build
from lengthen.hf import export, extend

SPECS = (
    "self_extend:group=4,window=8",
    "rerope",
    "dual_chunk",
    "string",
    "lm_infinite",
    "window:tokens=16+sinks",
    "yarn:factor=4+log_n:clip=True",
    "alibi",
    "kerple",
    "fire",
    "t5",
)


def folder_of(tmp_path, request_="self_extend:group=4", family="llama", **options):
    with extend(FAMILIES[family](), request_, **options) as extension:
        return export(extension, tmp_path / "out", form="lengthen").folder


@pytest.mark.parametrize("spec", SPECS)
def test_the_folder_opens_as_the_extended_model_bit_by_bit(spec, tmp_path):
    x = ids(100)
    extension = extend(llama(), spec)
    expected, chunks = logits(extension.model, x), in_chunks(extension.model, x, (1, 40, 7))
    folder = export(extension, tmp_path / "out", form="lengthen").folder
    model, tokenizer = lengthen.load(folder)
    assert tokenizer is None and not model.training
    assert torch.equal(logits(model, x), expected) and torch.equal(in_chunks(model, x, (1, 40, 7)), chunks)
    # To transformers alone it is the checkpoint as it was, at its own length.
    plain = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert plain.config.max_position_embeddings == TRAINED
    assert apart(logits(plain, x), logits(extension.restore(), x)) < 1e-5
    assert {p.suffix for p in folder.iterdir()} == {".json", ".safetensors"}


def test_what_the_scheme_learned_comes_along(tmp_path):
    x, extension = ids(60), extend(llama(), "kerple")
    with torch.no_grad():
        for parameter in extension.schemes[None].parameters():
            parameter.mul_(1.7)
    expected = logits(extension.model, x)
    folder = export(extension, tmp_path / "out").folder
    assert torch.equal(logits(lengthen.load(folder)[0], x), expected)
    learned = folder / "lengthen.safetensors"
    save_file({name: t[..., :0] for name, t in load_file(learned).items()}, learned)
    with pytest.raises(UsageError, match="another model"):
        lengthen.load(folder)
    learned.unlink()
    with pytest.raises(UsageError, match=r"no lengthen\.safetensors"):
        lengthen.load(folder)


def test_lengths_layer_types_and_routes_are_kept(tmp_path):
    x = ids(60)
    with extend(FAMILIES["gemma3"](), {"full_attention": "self_extend:group=4", "sliding_attention": None}) as extension:
        expected = logits(extension.model, x)
        folder = export(extension, tmp_path / "types").folder
    assert torch.equal(logits(lengthen.load(folder)[0], x), expected)
    with extend(llama(), "dynamic_ntk", tokens=[TRAINED, 100]) as extension:
        expected = logits(extension.model, x)
        folder = export(extension, tmp_path / "rows").folder
    assert torch.equal(logits(lengthen.load(folder)[0], x), expected)
    with extend(llama(), "dynamic_ntk", tokens=100, route="raw") as extension:
        expected = logits(extension.model, x)
        folder = export(extension, tmp_path / "length").folder
    model = lengthen.load(folder)[0]
    assert torch.equal(logits(model, x), expected) and model.config.max_position_embeddings == 100


def test_a_vanilla_folder_has_no_record_and_opens_plain(tmp_path):
    x = ids(60)
    with extend(llama(), "yarn:factor=4") as extension:
        expected = logits(extension.model, x)
        folder = export(extension, tmp_path / "out").folder
    assert not (folder / "lengthen.json").exists()
    assert apart(logits(lengthen.load(folder)[0], x), expected) < 1e-4


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"format": 2}, "format 2.*reads format 1"),
        ({"format": None}, "format None"),
        ({"format": "1"}, "format '1'"),
        ({"code": "import os"}, "no entry of lengthen.json named 'code'"),
        ({"method": "self_extnd"}, "Did you mean 'self_extend'"),
        ({"method": "self_extend:grp=4"}, "no option"),
        ({"method": ["self_extend"]}, "names a method by a spec"),
        ({"method": {"py/object": {"os": "system"}}}, "names a method by a spec"),
        ({"method": None}, "names a method by a spec"),
        ({"method": {"chunked_attention": "pi"}}, "chunked_attention"),
        ({"method": "self_extend:group=__import__('os').system('false')"}, "group"),
        ({"tokens": "128"}, "'tokens'"),
        ({"tokens": -1}, "'tokens'"),
        ({"tokens": True}, "'tokens'"),
        ({"tokens": [64, "x"]}, "'tokens'"),
        ({"tokens": 8}, "8"),
        ({"original": 0}, "'original'"),
        ({"route": "shell"}, "no route"),
    ],
)
def test_a_record_that_is_newer_damaged_or_hostile_is_refused(entries, reason, tmp_path):
    folder = folder_of(tmp_path)
    about = json.loads((folder / "lengthen.json").read_text())
    (folder / "lengthen.json").write_text(json.dumps(about | entries))
    with pytest.raises(UsageError, match=reason):
        lengthen.load(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00\xff", '{"format": 1, "format": 1'])
def test_a_record_that_is_no_json_object_is_refused(text, tmp_path):
    folder = folder_of(tmp_path)
    (folder / "lengthen.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="damaged"):
        lengthen.load(folder)


def test_the_record_is_read_before_the_weights(tmp_path, monkeypatch):
    folder = folder_of(tmp_path)
    (folder / "lengthen.json").write_text("{")
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("weights were read first"))
    with pytest.raises(UsageError, match="damaged"):
        lengthen.load(folder)


def test_pickles_beside_a_record_are_refused(tmp_path):
    folder = folder_of(tmp_path)
    shutil.move(folder / "model.safetensors", folder / "pytorch_model.bin")
    with pytest.raises((Refusal, UsageError)):
        lengthen.load(folder)


def test_a_scheme_without_a_spec_is_refused_and_leaves_nothing(tmp_path):
    with extend(llama(), build("alibi")) as extension, pytest.raises(Refusal, match="Register it"):
        export(extension, tmp_path / "out")
    assert not list(tmp_path.iterdir())
