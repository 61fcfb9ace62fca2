"""A GGUF copy says how to turn in llama.cpp's own words: read back, by its arithmetic in float64, and by llama.cpp itself."""

import re
import shlex
from importlib.util import find_spec

import gguf
import numpy as np
import pytest
import readers
import real_llama_cpp
from tiny import FAMILIES, TRAINED, apart, ids, llama, logits
from tiny_gguf import write_gguf
from transformers import AutoModelForCausalLM

from lengthen.core import Refusal, UsageError
from lengthen.hf import extend, load
from lengthen.hf.export import export_gguf, server_flags

ENTRIES = ("ntk:factor=4", "abf:adjusted=5e5", "pi:factor=4", "yarn:factor=4", "yarn:factor=4,attention_factor=1.3")
TABLES = (
    "yarn:factor=4,ramp=paper",
    "yarn:factor=4,truncate=false",
    "yarn:factor=4,fast=8.0,slow=0.5",
    "ntk_by_parts:factor=4",
    "longrope:factor=4",
    "llama3:factor=4.0",
    "giraffe_truncated",
    "resonance:factor=4",
)
"""What entries can say, and what needs a table of divisors."""
needs_llama_cpp = pytest.mark.skipif(find_spec("cyllama") is None, reason="llama.cpp comes with the wheel of cyllama")


def written(tmp_path, arch="llama"):
    """A tiny checkpoint, and a GGUF of it."""
    model = FAMILIES[arch]()
    return model, write_gguf(tmp_path / "source.gguf", model, arch)


def extended(model, spec):
    return extend(model, spec, tokens=4 * TRAINED)


def fields(path, arch="llama"):
    return {key.removeprefix(f"{arch}."): field.contents() for key, field in gguf.GGUFReader(path).fields.items()}


@pytest.mark.parametrize("spec", [*ENTRIES, *TABLES])
def test_llama_cpps_arithmetic_makes_the_rule_of_the_copy(spec, tmp_path):
    model, source = written(tmp_path)
    with extended(model, spec) as extension:
        rule, done = extension.schemes[None].rotation.rule, export_gguf(extension, source, tmp_path / "copy.gguf")
    read = fields(done.file)
    assert read["context_length"] == 4 * TRAINED and (done.table is not None) == (spec in TABLES)
    tables = [t.data for t in gguf.GGUFReader(done.file).tensors if t.name == "rope_freqs.weight"]
    turn, multiplier = readers.llama_cpp(read, {}, tables[0].astype(float) if tables else None)
    # Entries and the table are float32.
    assert np.allclose(turn, rule.inv_freq(16), rtol=3e-7, atol=1e-25)
    assert multiplier**2 == pytest.approx(rule.logit_multiplier, rel=3e-7)


@needs_llama_cpp
@pytest.mark.parametrize("spec", [*ENTRIES, *TABLES])
def test_llama_cpp_itself_gives_the_logits(spec, tmp_path):
    x = ids(100, rows=1)
    model, source = written(tmp_path)
    with extended(model, spec) as extension:
        expected, done = logits(model, x)[0], export_gguf(extension, source, tmp_path / "copy.gguf")
    assert apart(real_llama_cpp.logits(done.file, x[0]), expected) < 1e-3
    assert apart(real_llama_cpp.logits(source, x[0]), expected) > 1e-2


@needs_llama_cpp
@pytest.mark.parametrize("spec", ["ntk:factor=4", "pi:factor=4", "yarn:factor=4", "yarn:factor=4,fast=8.0,slow=0.5"])
def test_llama_cpp_itself_follows_the_flags(spec, tmp_path):
    x = ids(100, rows=1)
    model, source = written(tmp_path)
    with extended(model, spec) as extension:
        expected = logits(model, x)[0]
        told = next(f for f in server_flags(extension) if f.server.name == "llama.cpp")
    words = shlex.split(re.sub(".*MODEL.gguf ", "", str(told)))
    flags = {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}
    del flags["ctx-size"], flags["override-kv"]
    assert apart(real_llama_cpp.logits(source, x[0], flags), expected) < 1e-3


@needs_llama_cpp
def test_llama_cpp_overwrites_its_flag_for_yarns_multiplier(tmp_path):
    """Why the multiplier goes into the file, or into --override-kv."""
    x = ids(100, rows=1)
    flags = {"rope-scaling": "yarn", "rope-scale": "4", "yarn-orig-ctx": str(TRAINED), "yarn-ext-factor": "1.0"}
    _, source = written(tmp_path)
    found = [real_llama_cpp.logits(source, x[0], flags | {"yarn-attn-factor": factor}) for factor in ("1.0", "2.0")]
    assert apart(*found) == 0


def test_the_weights_stay_as_they_are_byte_by_byte(tmp_path):
    model, source = written(tmp_path)
    with extended(model, "yarn:factor=4,ramp=paper") as extension:
        done = export_gguf(extension, source, tmp_path / "copy.gguf")
    before, after = gguf.GGUFReader(source), gguf.GGUFReader(done.file)
    kept = [t for t in after.tensors if t.name != "rope_freqs.weight"]
    assert [(t.name, t.tensor_type, list(t.shape)) for t in kept] == [
        (t.name, t.tensor_type, list(t.shape)) for t in before.tensors
    ]
    assert all(np.array_equal(a.data, b.data) for a, b in zip(kept, before.tensors, strict=True))
    changed = {
        key
        for key, field in before.fields.items()
        if not key.startswith("GGUF.") and after.fields[key].contents() != field.contents()
    }
    assert changed == {"llama.context_length"}


def test_transformers_reads_a_base_and_leaves_scaling_out_which_load_refuses(tmp_path):
    x, (model, source) = ids(100), written(tmp_path)
    with extended(model, "ntk:factor=4") as extension:
        expected, done = logits(model, x), export_gguf(extension, source, tmp_path / "ntk.gguf")
    read = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=done.file.name).eval()
    assert apart(logits(read, x), expected) < 1e-4 and read.config.max_position_embeddings == 4 * TRAINED
    with extended(model, "yarn:factor=4") as extension:
        scaled = export_gguf(extension, source, tmp_path / "yarn.gguf")
    with pytest.raises(Refusal, match="scales its frequencies"):
        load(scaled.file)


def test_architectures_without_a_place_for_tables_take_entries(tmp_path):
    model, source = written(tmp_path, "qwen2")
    with extended(model, "longrope:factor=4") as extension, pytest.raises(Refusal, match="no place for a"):
        export_gguf(extension, source, tmp_path / "copy.gguf")
    with extended(model, "pi:factor=4") as extension:
        done = export_gguf(extension, source, tmp_path / "copy.gguf")
    assert fields(done.file, "qwen2")["rope.scaling.factor"] == 4.0


@pytest.mark.parametrize(
    ("spec", "source", "target", "error", "reason"),
    [
        ("self_extend", "source", "no", Refusal, "2 regions"),
        ("pi:factor=4", "source", "source", UsageError, "is there already"),
        ("pi:factor=4", "scaled", "no", Refusal, "already"),
        ("pi:factor=4", "other", "no", UsageError, "another checkpoint"),
        ("pi:factor=4", "text", "no", UsageError, "no GGUF"),
        ("pi:factor=4", "none", "no", UsageError, "no file"),
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_nothing(spec, source, target, error, reason, tmp_path):
    model, plain = written(tmp_path)
    with extended(model, "pi:factor=4") as extension:
        export_gguf(extension, plain, tmp_path / "scaled.gguf")
    write_gguf(tmp_path / "other.gguf", llama(rope_parameters={"rope_type": "default", "rope_theta": 5e5}), "llama")
    (tmp_path / "text.gguf").write_bytes(b"no gguf at all, but long enough to be read as one")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with extended(model, spec) as extension, pytest.raises(error, match=reason):
        export_gguf(extension, tmp_path / f"{source}.gguf", tmp_path / f"{target}.gguf")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
