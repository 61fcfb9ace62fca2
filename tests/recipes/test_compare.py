"""A whole comparison in small: what it writes is what its saved models say, and interrupted work goes on."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from lengthen.core import LengthenError, UsageError
from lengthen.data import load_saved, prepare
from lengthen.evaluate import read_records
from lengthen.models.store import load_decoder
from lengthen.recipes import run
from lengthen.recipes.compare import compare, open_comparison
from lengthen.recipes.config import CompareConfig


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    words = np.random.default_rng(0).choice(["the ", "cat ", "sat ", "on ", "a ", "mat. ", "dogs ", "run\n"], size=(12, 400))
    for n, row in enumerate(words):
        (folder / f"{n:02}.txt").write_text("".join(row))
    return folder


@pytest.fixture(scope="module")
def config(texts):
    return CompareConfig(
        methods=("rope", "alibi"), train_length=16, lengths=(16, 32, 64), seeds=(0, 1), data=str(texts), steps=6, batch=4,
        documents=3, targets=8, cost=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def done(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out") / "run"
    return compare(config, folder, jobs=1, show=False), folder


def test_fixed_targets_are_what_the_saved_model_gives(done, config):
    found, folder = done
    held = prepare(config.data, config.tokenizer, min_held_tokens=65).held
    model = load_decoder(folder / "rope-L16-s1" / "model").double().eval()
    losses = []
    for document in [d.ids for d in held if len(d.ids) > 64][:3]:
        window = torch.from_numpy(document[-65:])
        logits = model(window[None, -33:-1], backend="dense")[0, -8:]
        losses += [-logits.log_softmax(-1)[t, y].item() for t, y in enumerate(window[-8:])]
    read = found.cell("rope", 32)
    assert len(losses) == 8 * min(3, sum(len(d.ids) > 64 for d in held))
    assert read.by_seed[1] == pytest.approx(np.mean(losses), abs=1e-5)


def test_changes_are_against_the_same_targets_at_the_training_length(done):
    found, _ = done
    cell, own = found.cell("alibi", 64), found.cell("alibi", 16)
    assert cell.change.value == pytest.approx(cell.loss.value - own.loss.value, abs=1e-12)
    assert own.change.value == 0


def test_what_is_written(done, config):
    found, folder = done
    rows = read_records(folder / "records.jsonl")
    assert {r.method for r in rows} == {"rope", "alibi"} and {r.seed for r in rows} == {0, 1}
    summary = json.loads((folder / "summary.json").read_text())
    assert len(summary["cells"]) == 2 * 3 * 3 * 3
    page = (folder / "report.html").read_text()
    assert "<script src" not in page and f"{found.cell('rope', 16).loss.value:.3f}" in page
    assert "rope" in (folder / "table.md").read_text()
    again = open_comparison(folder)
    assert again.cell("rope", 64).loss == found.cell("rope", 64).loss


def test_a_folder_that_exists_is_refused_or_resumed_to_the_same_numbers(done, config):
    _, folder = done
    with pytest.raises(UsageError, match="--resume"):
        compare(config, folder, jobs=1, show=False)
    with pytest.raises(UsageError, match="steps is 6 there and 7 here"):
        compare(replace(config, steps=7), folder, resume=True, jobs=1, show=False)
    lost = folder / "alibi-L16-s0" / "result.json"
    before = json.loads(lost.read_text())["evaluation"]["readings"]
    lost.unlink()
    compare(config, folder, resume=True, jobs=1, show=False)
    assert json.loads(lost.read_text())["evaluation"]["readings"] == before


def test_a_diverging_run_is_reported_and_the_others_go_on(config, tmp_path):
    found = compare(replace(config, lr=1e30, seeds=(0,)), tmp_path / "run", jobs=1, show=False)
    assert len(found.failures()) == 2
    assert all("step" in r["training"]["reason"] or r["training"]["reason"] for r in found.failures())
    assert "failed" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"methods": ("ropee",)}, "rope"),
        ({"methods": ("rope", "rope")}, "twice"),
        ({"methods": ("rope", "RoPE")}, "'rope' is given twice"),
        ({"methods": ("rope:base=1e3", "rope:base=1000")}, "are one, spelt in two ways"),
        ({"methods": ("bipe:separators=(1,2)", "bipe:separators=[1,2]")}, "are one"),
        ({"protocols": ()}, "No protocol was asked for"),
        ({"controls": ("bac",)}, "bca"),
        ({"stride": 0}, "'stride'.*got 0"),
        ({"stride": 17}, "stride of 17 would skip tokens at length 16"),
        ({"train_length": 1}, "'train_length' of compare must be a whole number of tokens, at least 2, got 1"),
        ({"methods": ("rope:fraction=0",)}, "fraction"),
        ({"preset": "tini"}, "tiny"),
        ({"protocols": ("fixed_target",)}, "fixed_targets"),
        ({"lengths": (64, 32)}, "rise"),
        ({"lengths": (1, 32)}, "at least 2"),
        ({"lengths": (16, 10**6)}, "1000001"),
        ({"seeds": ()}, "seeds"),
        ({"data": "no_such_corpus"}, "no_such_corpus"),
        ({"steps": 0}, "steps"),
        ({"lr": -1.0}, "lr"),
        ({"methods": ("alibi:bidirectional=symmetric",)}, "both directions"),
    ],
)
def test_what_cannot_work_is_refused_before_a_folder_is_made(config, tmp_path, change, said):
    with pytest.raises(UsageError, match=said):
        compare(replace(config, **change), tmp_path / "run", jobs=1, show=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("jobs", [0, -1])
def test_no_job_at_all_is_refused(config, tmp_path, jobs):
    with pytest.raises(UsageError, match=f"'jobs' of compare.*got {jobs}"):
        compare(config, tmp_path / "run", jobs=jobs, show=False)


@pytest.mark.parametrize("place", ["file", "file/run", "x" * 300])
def test_a_folder_that_cannot_be_made_is_refused(config, tmp_path, place):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(UsageError, match=r"cannot be used: .*Give another --out"):
        compare(config, tmp_path / place, jobs=1, show=False)
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize(
    ("content", "said"), [("null", "an object"), ("[]", "an object"), ("{}", "spec, training"), ("{", "line 1")]
)
def test_a_damaged_result_is_named_with_the_way_out(done, tmp_path, content, said):
    copied = tmp_path / "run"
    shutil.copytree(done[1], copied)
    (copied / "rope-L16-s0" / "result.json").write_text(content)
    with pytest.raises(UsageError, match=rf"result.json is damaged: .*{said}.*Remove it to make it anew"):
        open_comparison(copied)


def test_a_crashing_run_does_not_take_the_others_with_it(config, tmp_path, monkeypatch):
    real = run.evaluate

    def crash(model, *args, **how):
        if len(model.schemes[0].terms):
            raise MemoryError("no room for ALiBi")
        return real(model, *args, **how)

    monkeypatch.setattr(run, "evaluate", crash)
    with pytest.raises(LengthenError, match=r"1 of 2 runs crashed \(alibi-L16-s0: MemoryError: no room for ALiBi"):
        compare(replace(config, seeds=(0,)), tmp_path / "run", jobs=1, show=False)
    assert open_comparison(tmp_path / "run").cell("rope", 64) is not None
    assert (tmp_path / "run" / "report.html").exists()
    monkeypatch.setattr(run, "evaluate", real)
    assert compare(replace(config, seeds=(0,)), tmp_path / "run", resume=True, jobs=1, show=False).cell("alibi", 64) is not None


def test_a_run_keeps_its_tokenizer(done):
    assert load_saved(done[1] / "rope-L16-s0" / "tokenizer").decode([104, 105]) == "hi"


def test_several_processes_of_one_comparison_are_refused(config, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="started in 2 processes"):
        compare(config, tmp_path / "run", show=False)
