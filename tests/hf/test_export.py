"""An exported folder gives plain transformers the logits of the extended model, under a name whose arithmetic is ours."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers as tf
from tiny import FAMILIES, TRAINED, VOCAB, apart, ids, in_chunks, llama, logits, make
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from lengthen.core import LengthenError, PositionMap, Refusal, Scheme, UsageError, build, compose
from lengthen.hf import declared, export, extend, own_scheme
from lengthen.hf.export import not_vanilla, planned

EXACT = 1e-4
"""Units of the deviation of the logits."""
NAMED = {
    "rope": "default",
    "abf:adjusted=5e5": "default",
    "ntk:factor=4": "default",
    "dynamic_ntk:factor=4": "default",
    "pi:factor=4": "linear",
    "llama3:factor=4.0": "llama3",
    "yarn:factor=4": "yarn",
    "yarn:factor=4,truncate=false,fast=8.0,slow=0.5": "yarn",
    "yarn:factor=4,attention_factor=1.3": "yarn",
    "yarn:factor=4,mscale=2.0,mscale_all_dim=1.0": "yarn",
    "ntk_by_parts:factor=4,version=deployed": "yarn",
    "p_rope": "proportional",
    "yarn:factor=4,ramp=paper": "longrope",
    "ntk_by_parts:factor=4": "longrope",
    "ntk_by_parts:factor=4,version=original": "longrope",
    "ntk_mixed:factor=4": "longrope",
    "longrope:factor=4": "longrope",
    "giraffe_power": "longrope",
    "giraffe_truncated": "longrope",
    "resonance:factor=4": "longrope",
}
"""Our spec, and the rope_type whose own arithmetic gives it."""


class Doubled(PositionMap):
    """Every position twice as far."""

    def forward(self, idx, tokens=None):
        return 2 * idx


def saved(extension, tmp_path, **options):
    return export(extension, tmp_path / "out", **options)


def plain(folder):
    return AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.mark.parametrize("spec", NAMED)
def test_transformers_alone_gives_the_logits_of_the_extended_model(spec, tmp_path):
    x = ids(110)
    with extend(llama(), spec, tokens=4 * TRAINED) as extension:
        expected = logits(extension.model, x)
        done = saved(extension, tmp_path)
        rule = extension.schemes[None].rotation.rule
    assert done.plan.rope_types == {None: NAMED[spec]} and done.plan.form == "vanilla"
    model = plain(done.folder)
    assert apart(logits(model, x), expected) < EXACT
    assert apart(in_chunks(model, x, (1, 30, 7)), expected) < EXACT
    # What our own reading of the configuration makes of it, in float64.
    read = declared(json.loads((done.folder / "config.json").read_text()))[None]
    for tokens in (TRAINED, 4 * TRAINED):
        assert np.allclose(read.inv_freq(tokens), rule.inv_freq(16), rtol=1e-12, atol=1e-20)
        assert read.settled(tokens).mscale == pytest.approx(rule.mscale, rel=1e-12)
    assert model.config.max_position_embeddings == 4 * TRAINED


@pytest.mark.parametrize("spec", ["pi:factor=4", "ntk:factor=4", "yarn:factor=4", "giraffe_truncated"])
@pytest.mark.parametrize("family", ["qwen2", "qwen3", "gpt_neox", "phi3", "stablelm", "glm", "smollm3", "mixtral", "gemma3"])
def test_families_with_partial_rotary_layer_types_and_narrow_configurations(family, spec, tmp_path):
    model, x = FAMILIES[family](), ids(100)
    request = {"full_attention": spec} if family == "gemma3" else spec
    with extend(model, request, tokens=4 * model.config.max_position_embeddings) as extension:
        expected = logits(model, x)
        done = saved(extension, tmp_path)
    loaded = plain(done.folder)
    assert apart(logits(loaded, x), expected) < EXACT
    assert apart(logits(model, x), expected) > 1e-2
    if family == "phi3":
        assert done.plan.rope_types[None] in ("default", "longrope"), "Phi3Config knows no other"
    if family == "gemma3":
        assert done.plan.rope_types["sliding_attention"] == "default"


def test_the_name_is_checked_by_numbers_where_transformers_leaves_an_entry_out(tmp_path):
    """transformers 5.24 reads `truncate` beside the layer types, so under them it counts as True."""
    sizes = {"head_dim": 64, "max_position_embeddings": 2048, "num_hidden_layers": 6, "sliding_window": 16}
    spec = "yarn:factor=4,truncate=false"
    model = make(tf.Gemma3TextConfig, tf.Gemma3ForCausalLM, **sizes)
    with extend(model, {"full_attention": spec}) as extension:
        assert planned(extension).rope_types["full_attention"] == "longrope"
    with extend(llama(head_dim=64, max_position_embeddings=2048), spec) as extension:
        assert planned(extension).rope_types == {None: "yarn"}


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ("self_extend:group=4", "2 regions"),
        ("log_n:clip=True", "LogN follows the number of visible keys"),
        ("window:tokens=16", "pattern is Window"),
        ("alibi", "no rotation"),
        ("yarn:factor=4,mscale=1.0,mscale_all_dim=1.0,deepseek=true", "whole head"),
        ("yarn:factor=4+alibi", "ALiBi adds to attention"),
        (compose(build("rope:interleaved=false"), Scheme(positions=Doubled())), "Doubled maps positions"),
    ],
)
def test_what_no_configuration_can_say_has_a_reason(request_, reason, tmp_path):
    with extend(llama(), request_) as extension:
        assert reason in not_vanilla(extension)
        with pytest.raises(Refusal, match=reason):
            saved(extension, tmp_path, form="vanilla")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("spec", "warned"), [("yarn:factor=4", False), ("pi:factor=4", False), ("longrope:factor=4", True)])
def test_a_multiplier_that_servers_look_for_elsewhere_is_told(spec, warned):
    with extend(llama(), spec) as extension:
        assert ("--servers" in str(planned(extension))) == warned


def test_a_route_that_was_asked_for_and_rows_of_their_own_lengths_have_reasons():
    with extend(llama(), "yarn:factor=4", route="raw") as extension:
        assert "route 'raw'" in not_vanilla(extension)
    with extend(llama(), "dynamic_ntk", tokens=[TRAINED, 4 * TRAINED]) as extension:
        assert "2 rows" in not_vanilla(extension)


def test_the_extended_model_stays_as_it_is(tmp_path):
    model, x = llama(), ids(60)
    before, config = logits(model, x), model.config
    extension = extend(model, "yarn:factor=4")
    during = logits(model, x)
    saved(extension, tmp_path)
    assert torch.equal(logits(model, x), during) and model.config is config
    extension.restore()
    assert torch.equal(logits(model, x), before) and model.config.max_position_embeddings == TRAINED


def test_the_folder_holds_safetensors_and_needs_nothing_of_ours(tmp_path):
    x = ids(100, rows=1)
    with extend(llama(tie_word_embeddings=True), "yarn:factor=4,ramp=paper") as extension:
        expected = logits(extension.model, x)
        folder = saved(extension, tmp_path).folder
    assert {p.name for p in folder.iterdir()} == {"config.json", "generation_config.json", "model.safetensors"}
    code = (
        "import sys; sys.modules['lengthen'] = None; import torch, json; from transformers import AutoModelForCausalLM as A;"
        f"m = A.from_pretrained({str(folder)!r}).eval(); x = torch.tensor({x.tolist()});"
        "print(json.dumps(m(x).logits[0, -1].tolist()))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert apart(torch.tensor(json.loads(out)).double(), expected[0, -1]) < EXACT


def test_half_precision_is_kept(tmp_path):
    x = ids(100)
    with extend(llama().bfloat16(), "yarn:factor=4") as extension:
        expected = logits(extension.model, x)
        folder = saved(extension, tmp_path).folder
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert model.dtype == torch.bfloat16
    assert apart(logits(model, x), expected) < 0.2


def test_the_tokenizer_comes_along_and_knows_the_length(tmp_path):
    words = Tokenizer(WordLevel({f"w{n}": n for n in range(VOCAB)}, unk_token="w0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=TRAINED)
    with extend(llama(), "pi:factor=4") as extension:
        folder = saved(extension, tmp_path, tokenizer=tokenizer).folder
    assert AutoTokenizer.from_pretrained(folder).model_max_length == 4 * TRAINED
    assert tokenizer.model_max_length == TRAINED


def test_generation_settings_come_along(tmp_path):
    model = llama()
    model.generation_config.temperature, model.generation_config.do_sample = 0.7, True
    with extend(model, "pi:factor=4") as extension:
        folder = saved(extension, tmp_path).folder
    assert json.loads((folder / "generation_config.json").read_text())["temperature"] == 0.7


def test_nothing_is_replaced(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    with extend(llama(), "pi:factor=4") as extension:
        with pytest.raises(UsageError, match="holds 1 files"):
            export(extension, tmp_path / "full")
        with pytest.raises(UsageError, match="is a file"):
            export(extension, tmp_path / "file")
        export(extension, tmp_path / "empty")
    assert (tmp_path / "full" / "notes.txt").read_text() == "mine" and (tmp_path / "empty" / "config.json").exists()


def test_a_disk_that_refuses_leaves_nothing(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with extend(llama(), "pi:factor=4") as extension:
        monkeypatch.setattr(type(extension.model), "save_pretrained", full)
        with pytest.raises(LengthenError, match="No space left"):
            saved(extension, tmp_path)
        assert extension.model.config.max_position_embeddings == 4 * TRAINED
    assert not list(tmp_path.iterdir())


def test_what_is_no_extension_is_refused(tmp_path):
    model = llama()
    with pytest.raises(UsageError, match="what extend"):
        export(model, tmp_path / "out")
    extension = extend(model, "pi:factor=4")
    extension.restore()
    with pytest.raises(UsageError, match="was restored"):
        export(extension, tmp_path / "out")
    with extend(model, "pi:factor=4") as extension, pytest.raises(UsageError, match="no form"):
        export(extension, tmp_path / "out", form="onnx")


def test_a_longrope_checkpoint_is_settled_and_no_longer_follows_the_length(tmp_path):
    lists = {"short_factor": [1.0] * 8, "long_factor": [1.0, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]}
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "factor": 4.0,
        "original_max_position_embeddings": TRAINED,
        **lists,
    }
    model, x = llama(rope_parameters=rope, max_position_embeddings=4 * TRAINED), ids(100)
    expected = logits(model, x)
    with extend(model, own_scheme(model, tokens=100), tokens=100) as extension:
        folder = saved(extension, tmp_path).folder
    config = AutoConfig.from_pretrained(folder)
    assert config.rope_parameters["short_factor"] == pytest.approx(lists["long_factor"])
    assert apart(logits(plain(folder), x), expected) < EXACT
