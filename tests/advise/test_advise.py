"""The whole, on a tiny model: files, interruptions, what goes wrong."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers as tf
from wordy import TARGET, TOKENS, TRAINED, llama, tokenizer, write_texts

from lengthen.advise import advise, trial
from lengthen.advise.memory import Need, need, require_room
from lengthen.advise.store import ABOUT, RECORDS
from lengthen.core import UsageError

METHODS = ("yarn", "ntk", "self_extend:group=8", "streaming_llm")


@pytest.fixture
def texts(tmp_path) -> str:
    return str(write_texts(tmp_path / "texts"))


def run(out: Path, texts: str, model=None, **given):
    settings = {"data": texts, "methods": METHODS, "documents": 2, "name": "tiny", **given}
    return advise(model if model is not None else llama(), tokenizer(), "4x", out, **settings)


def numbers(found) -> list:
    """All but times."""
    return [replace(row, decode=0.0, token_s=0.0) for row in found.rows]


def test_every_method_is_read_on_every_passage_and_ranked(tmp_path, texts):
    found = run(tmp_path / "out", texts)
    assert {r.candidate.spec for r in found.rows} == {"none", *METHODS}
    assert len(found.trials) == 10 and found.common == 2 and found.stopped is None and not found.failures
    assert sorted(found.rows, key=lambda r: r.score) == found.rows
    rows = {r.candidate.spec: r for r in found.rows}
    # Window and sinks make the trained length; self-extend, like all static rules, hides nothing.
    assert rows["streaming_llm"].facts.sees == TRAINED and rows["self_extend:group=8"].facts.sees == TARGET
    assert rows["yarn"].facts.readers[0] == "transformers" and rows["streaming_llm"].facts.readers == ()
    # 2 layers, keys and values, 2 groups of 8 channels, 4 bytes; streaming keeps all but the token to come.
    each = 2 * 2 * 2 * 8 * 4
    assert {s: r.cache_bytes // each for s, r in rows.items()} == {**dict.fromkeys(rows, TARGET), "streaming_llm": TRAINED - 1}
    # Streaming changes nothing inside the window.
    assert abs(rows["streaming_llm"].lost.value) < 1e-5 < abs(rows["yarn"].lost.value)
    assert json.loads(json.dumps(found.summary()))["rows"][0]["rank"] == 1


def test_interrupted_anywhere_it_resumes_to_the_same_numbers(tmp_path, texts):
    whole = run(tmp_path / "whole", texts)
    for after in (1, 4, 7):
        out = tmp_path / f"part{after}"

        def stop(what, share, left, out=out, after=after):
            path = out / RECORDS
            if path.exists() and len(path.read_text().splitlines()) >= after and share % 0.1 > 0.04:
                raise KeyboardInterrupt

        model = llama()
        before = {k: v.clone() for k, v in model.state_dict().items()}
        with pytest.raises(KeyboardInterrupt):
            run(out, texts, model, progress=stop)
        assert len((out / RECORDS).read_text().splitlines()) == after
        assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
        assert model.config._attn_implementation == llama().config._attn_implementation
        assert numbers(run(out, texts, model, resume=True)) == numbers(whole)


def test_a_resumed_folder_takes_more_methods_and_passages(tmp_path, texts):
    run(tmp_path / "out", texts, methods=("yarn",), documents=1)
    lines = len((tmp_path / "out" / RECORDS).read_text().splitlines())
    found = run(tmp_path / "out", texts, resume=True)
    assert lines == 2 and len((tmp_path / "out" / RECORDS).read_text().splitlines()) == 10
    assert numbers(found) == numbers(run(tmp_path / "again", texts))


def test_records_say_what_they_are_of(tmp_path, texts):
    run(tmp_path / "out", texts, methods=("yarn",), documents=1)
    rows = [json.loads(line) for line in (tmp_path / "out" / RECORDS).read_text().splitlines()]
    assert [r["method"] for r in rows] == ["none", "yarn"]
    assert all(r["train_length"] == TRAINED and r["eval_length"] == TARGET and r["extra"]["provenance"]["torch"] for r in rows)
    assert rows[0]["value"] == sum(rows[0]["extra"]["reading"]["nats"]) / sum(rows[0]["extra"]["reading"]["tokens"])


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried"),
            "out of memory",
        ),
        (torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory"),
        (MemoryError("no"), "out of memory"),
        (IndexError("a bug"), "IndexError: a bug"),
    ],
)
def test_what_goes_wrong_under_one_method_is_reported_and_the_rest_goes_on(tmp_path, texts, monkeypatch, error, said):
    heard = trial.hear

    def breaking(model, *rest):
        if model.config.rope_parameters["rope_type"] != "default":
            raise error
        return heard(model, *rest)

    monkeypatch.setattr(trial, "hear", breaking)
    model = llama()
    found = run(tmp_path / "out", texts, model, methods=("yarn", "streaming_llm"))
    assert list(found.failures) == ["yarn"] and found.failures["yarn"].startswith(said)
    assert {r.candidate.spec for r in found.rows} == {"none", "streaming_llm"} and len(found.trials) == 5
    monkeypatch.undo()
    again = run(tmp_path / "out", texts, model, methods=("yarn", "streaming_llm"), resume=True)
    assert not again.failures and len(again.rows) == 3, "what failed is tried again"


def test_refused_methods_say_why(tmp_path, texts):
    found = run(tmp_path / "out", texts, methods=("fire", "sinusoidal", "p_rope:wrong=1"), documents=1)
    assert "never trained" in found.failures["fire"] and "no option" in found.failures["p_rope:wrong=1"]
    assert "embeddings" in found.failures["sinusoidal"] and len(found.rows) == 1


def test_losses_that_are_not_finite_are_a_failure(tmp_path, texts, monkeypatch):
    monkeypatch.setattr(
        "lengthen.advise.reading.losses", lambda model, read, ids: torch.full((ids.shape[1] - 1,), float("nan"))
    )
    found = run(tmp_path / "out", texts, documents=1)
    assert not found.rows and all("not finite" in why for why in found.failures.values())


def test_at_the_budget_it_stops_with_what_it_has(tmp_path, texts):
    """A clock that stands still until a reading is kept: each takes 10 s, and two end within 25."""
    out = tmp_path / "out"

    def clock() -> float:
        return 10.0 * len((out / RECORDS).read_text().splitlines()) if (out / RECORDS).exists() else 0.0

    found = run(out, texts, budget="25s", clock=clock)
    assert [t.candidate.spec for t in found.trials] == ["none", "yarn"] and found.unread == list(METHODS[1:])
    assert "25 s" in found.stopped and "8 readings are left" in found.stopped
    assert any("Not tried: ntk" in s for s in found.sentences())


def test_a_model_with_spectra_by_layer_type_is_extended_where_it_sees_everything(tmp_path, texts):

    torch.manual_seed(0)
    sizes = {"vocab_size": len(TOKENS), "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 6, "head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 16, "max_position_embeddings": TRAINED}
    model = tf.Gemma3ForCausalLM(tf.Gemma3TextConfig(**sizes, **heads, initializer_range=0.2, pad_token_id=0)).eval()
    found = run(tmp_path / "out", texts, model, methods=("pi", "streaming_llm"), documents=1)
    assert not found.failures and {r.candidate.spec for r in found.rows} == {"none", "pi", "streaming_llm"}
    # Five layers hold 15 tokens, one holds all.
    rows = {r.candidate.spec: r for r in found.rows}
    assert rows["none"].cache_bytes == rows["pi"].cache_bytes == 2 * 2 * 16 * 4 * (5 * 15 + TARGET)
    assert (
        " --layers full_attention " in replace(found, trials=tuple(t for t in found.trials if t.candidate.spec == "pi")).line()
    )


SIZES = {"vocab_size": len(TOKENS), "initializer_range": 0.3, "bos_token_id": None, "eos_token_id": None}


def test_a_checkpoint_that_does_not_turn_has_its_table_interpolated(tmp_path, texts):
    """GPT-2 has no row for the positions behind its table: as it is, it fails, and the others go on."""
    torch.manual_seed(0)
    model = tf.GPT2LMHeadModel(tf.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=TRAINED, **SIZES)).eval()
    found = run(tmp_path / "out", texts, model, methods=None, documents=1)
    assert [r.candidate.spec for r in found.rows] == ["learned_interpolation"] and "none" in found.failures
    assert found.rows[0].lost is None and found.line().endswith("--method learned_interpolation --factor 4 --out DIR")


def test_a_trained_length_that_is_not_declared_has_to_be_given(tmp_path, texts):
    torch.manual_seed(0)
    model = tf.BloomForCausalLM(tf.BloomConfig(hidden_size=32, n_layer=2, n_head=4, pad_token_id=0, **SIZES)).eval()
    with pytest.raises(UsageError, match="does not say how many tokens"):
        run(tmp_path / "out", texts, model, methods=None)
    found = run(tmp_path / "out", texts, model, methods=None, documents=1, original=TRAINED)
    assert {"none", "alibi_interpolation"} <= {r.candidate.spec for r in found.rows}
    assert "learned_interpolation" in found.failures and found.trained == TRAINED
    assert found.line() is None or f" --original {TRAINED} " in found.line()


def test_bad_requests_are_refused_before_anything_is_read(tmp_path, texts):
    out = tmp_path / "out"

    def refused(match, **given):
        with pytest.raises(UsageError, match=match):
            settings = {"data": texts, "methods": METHODS, **given}
            advise(llama(), settings.pop("tok", tokenizer()), settings.pop("target", "4x"), out, **settings)
        assert not out.exists()

    refused("trained on 64 tokens, and the target is 32", target="32")
    refused("trained on 64 tokens, and the target is 64", target=TRAINED)
    refused("no length", target="far")
    refused("no time", budget="soon")
    refused("'documents' of advise", documents=0)
    refused("Did you mean 'yarn'", methods=["yarm"])
    refused("no tokenizer", tok=None)
    refused("no file or folder", data="./nowhere.txt")
    refused("is long enough: its longest has", target=4096, data=texts)


def test_a_folder_that_exists_is_kept(tmp_path, texts):
    run(tmp_path / "out", texts, methods=("yarn",), documents=1)
    with pytest.raises(UsageError, match="--resume"):
        run(tmp_path / "out", texts)
    with pytest.raises(UsageError, match="target is 256 there and 128 here"):
        advise(llama(), tokenizer(), 128, tmp_path / "out", data=texts, resume=True, name="tiny")
    torch.manual_seed(1)
    other = llama()
    other.lm_head.weight.data.add_(1.0)
    with pytest.raises(UsageError, match="weights is"):
        run(tmp_path / "out", texts, other, resume=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("x")
    with pytest.raises(UsageError, match="something else"):
        run(tmp_path / "mine", texts, resume=True)
    assert (tmp_path / "out" / ABOUT).exists()


def test_readings_of_another_text_are_not_mixed_in(tmp_path, texts):
    run(tmp_path / "out", texts, methods=("yarn",), documents=1)
    for path in Path(texts).iterdir():
        path.write_text("w1 " + path.read_text())
    with pytest.raises(UsageError, match="another passage"):
        run(tmp_path / "out", texts, methods=("yarn",), documents=1, resume=True)


def test_memory_is_estimated_from_what_the_cache_holds():
    model = llama()
    wanted = need(model, 1000)
    assert wanted.cache == 2 * (2 * 2 * 2 * 8 * 4) * 1000, "twice: 2 layers, keys and values, 2 groups of 8, 4 bytes"
    assert wanted.activations == (4 * 32 + 3 * 48) * 1000 * 4


def test_what_does_not_fit_is_refused_with_both_numbers():
    wanted = Need(2**31, 2**29, 2**29)
    with pytest.raises(
        UsageError, match=r"about 3\.00 GiB .*2\.00 GiB of it keys and values.*, and 2\.50 GiB are free\. Lower"
    ):
        require_room(wanted, 5 * 2**29, 1000)
    assert "tight" in require_room(wanted, 7 * 2**29, 1000)
    assert require_room(wanted, 2**34, 1000) is None and require_room(wanted, None, 1000) is None


def test_what_does_not_fit_is_refused_before_anything_is_read(tmp_path, texts, monkeypatch):
    monkeypatch.setattr("lengthen.advise.run.available", lambda device: 1000)
    with pytest.raises(UsageError, match="are free"):
        run(tmp_path / "out", texts)
    assert not (tmp_path / "out").exists()
