"""Server flags, read by each server's own arithmetic, give the frequencies and the one multiplier of the extended model."""

import itertools
import json
import shlex

import numpy as np
import pytest
import readers
from tiny import FAMILIES, llama

from lengthen.hf import extend
from lengthen.hf.export import server_flags

LENGTHS, BASES, FACTORS, SIZES = (32, 8192), (10_000.0, 5e5, 1e7), (1.0, 1.5, 4.0, 32.0), (16, 128)
SPECS = (
    "pi:factor={f}",
    "ntk:factor={f}",
    "yarn:factor={f}",
    "yarn:factor={f},attention_factor=1.0",
    "yarn:factor={f},attention_factor=1.37",
    "yarn:factor={f},truncate=false,fast=8.0,slow=0.5",
    "yarn:factor={f},mscale=2.0,mscale_all_dim=1.0",
    "yarn:factor={f},ramp=paper",
    "ntk_by_parts:factor={f},version=deployed",
    "llama3:factor={f}",
    "longrope:factor={f}",
    "resonance:factor={f}",
)
CORNERS = list(itertools.product(LENGTHS, BASES, FACTORS, SIZES))
CLOSE = {"rtol": 1e-7, "atol": 1e-25}


def model(length, base, size):
    return llama(
        num_hidden_layers=1,
        max_position_embeddings=length,
        head_dim=size,
        rope_parameters={"rope_type": "default", "rope_theta": base},
    )


def options(flags):
    """By name, without dashes; what stands behind the model's name."""
    words = shlex.split(str(flags).partition(": ")[2])
    words = words[words.index("MODEL.gguf" if "llama" in words[0] else "MODEL") + 1 :]
    return {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}


def by_name(extension):
    return {flags.server.name: flags for flags in server_flags(extension)}


def agree(read, rule, size):
    turn, multiplier = read
    assert np.allclose(turn, rule.inv_freq(size), **CLOSE)
    assert multiplier**2 == pytest.approx(rule.logit_multiplier, rel=1e-12)


@pytest.mark.parametrize("spec", SPECS)
def test_every_server_reads_what_the_rule_says(spec):
    for number, (length, base, factor, size) in enumerate(CORNERS):
        # A Latin-square share of the corners for each method, all of them over the methods.
        if number % 4 != SPECS.index(spec) % 4:
            continue
        tokens = round(length * factor)
        with extend(model(length, base, size), spec.format(f=factor)) as extension:
            flags, rule = by_name(extension), extension.schemes[None].rotation.rule
        for name, option, read in (
            ("vLLM", "hf-overrides", readers.vllm),
            ("SGLang", "json-model-override-args", readers.sglang),
        ):
            told = options(flags[name])
            overrides = json.loads(told[option])
            assert overrides["max_position_embeddings"] == tokens
            assert told["max-model-len" if name == "vLLM" else "context-length"] == str(tokens)
            for text in (1, length, length + 1, tokens):
                agree(read(overrides, size, text), rule, size)
        _agree_llama_cpp(flags["llama.cpp"], rule, length, base, size, tokens)


def _agree_llama_cpp(flags, rule, length, base, size, tokens):
    """Where flags suffice; otherwise the reason names the file to write."""
    if flags.why is not None:
        assert "export_gguf" in flags.why
        return
    told = options(flags)
    given = dict(part.split("=") for part in told.pop("override-kv").split(","))
    file = {"context_length": length, "rope.freq_base": base, "rope.dimension_count": size}
    for key, value in given.items():
        kind, _, number = value.partition(":")
        file[key.removeprefix("llama.")] = {"int": int, "float": float}[kind](number)
    assert file["context_length"] == tokens and told["ctx-size"] == str(tokens)
    agree(readers.llama_cpp(file, told), rule, size)


@pytest.mark.parametrize("spec", ["pi:factor=4", "ntk:factor=4", "yarn:factor=4", "yarn:factor=4,fast=8.0,slow=0.5"])
def test_flags_suffice_for_llama_cpp(spec):
    with extend(llama(), spec) as extension:
        assert by_name(extension)["llama.cpp"].why is None


def test_partial_rotary_keeps_its_share_in_vllm_and_has_a_reason_in_sglang():
    with extend(FAMILIES["stablelm"](), "yarn:factor=4") as extension:
        flags, rotation = by_name(extension), extension.schemes[None].rotation
    read = readers.vllm(json.loads(options(flags["vLLM"])["hf-overrides"]), 16, 100)
    agree(read, rotation.rule, rotation.size)
    assert rotation.size < 16 and "stablelm" in flags["SGLang"].why


@pytest.mark.parametrize(
    ("family", "request_", "reasons"),
    [
        ("gpt_neox", "yarn:factor=4", {"vLLM": "gpt_neox", "SGLang": "gpt_neox", "llama.cpp": None}),
        ("mixtral", "yarn:factor=4", {"vLLM": None, "SGLang": "mixtral", "llama.cpp": "mixtral"}),
        ("gemma3", {"full_attention": "pi:factor=4"}, dict.fromkeys(("vLLM", "SGLang", "llama.cpp"), "by layer type")),
        ("llama", "self_extend", dict.fromkeys(("vLLM", "SGLang", "llama.cpp"), "2 regions")),
        ("llama", "yarn:factor=4+log_n:clip=true", dict.fromkeys(("vLLM", "SGLang", "llama.cpp"), "visible keys")),
        ("llama", "longrope:factor=4", {"vLLM": None, "SGLang": None, "llama.cpp": "no flag gives these frequencies"}),
    ],
)
def test_what_a_server_cannot_be_told_has_a_reason(family, request_, reasons):
    with extend(FAMILIES[family](), request_) as extension:
        flags = by_name(extension)
    for name, reason in reasons.items():
        assert (flags[name].why is None) if reason is None else reason in flags[name].why
        assert flags[name].to_json()["why"] == flags[name].why and bool(flags[name].arguments) == (reason is None)


def test_a_checkpoint_that_is_scaled_already_has_a_reason_in_llama_cpp():
    rope = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0}
    from lengthen.methods.pi import Geometric, Interpolated

    with extend(llama(rope_parameters=rope), Interpolated(8.0, Geometric()), tokens=128) as extension:
        assert "already (linear)" in by_name(extension)["llama.cpp"].why
