"""A whole comparison in small: what it writes is what its saved models say, and interrupted work goes on."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from lengthen.core import UsageError
from lengthen.data import prepare
from lengthen.evaluate import read_records
from lengthen.models.store import load_decoder
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
