"""`lengthen extend` as a person runs it."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lengthen.cli.app import app
from lengthen.core import Refusal, UsageError

sys.path.insert(0, str(Path(__file__).parent.parent / "hf"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    from tiny import llama

    folder = tmp_path_factory.mktemp("checkpoint")
    llama().save_pretrained(folder)
    return str(folder)


def run(*args: str):
    done = CliRunner().invoke(app, ["extend", *args], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def test_the_help_has_examples_and_json():
    page = run("--help").output
    assert page.count("lengthen extend") >= 3 and "--json" in page and "--dry-run" in page


def test_a_plain_folder_and_flags_and_what_was_decided(checkpoint, tmp_path):
    out = tmp_path / "out"
    text = run(checkpoint, "--method", "yarn", "--factor", "4", "--out", str(out), "--servers").stdout
    assert "4 times the 32 trained tokens reach 128" in text and "2 of 2 attention layers" in text and "(yarn)" in text
    assert "--hf-overrides" in text and "--json-model-override-args" in text and "--yarn-orig-ctx 32" in text
    config = json.loads((out / "config.json").read_text())
    assert config["max_position_embeddings"] == 128 and config["rope_parameters"]["rope_type"] == "yarn"


def test_json_says_the_same(checkpoint, tmp_path):
    said = json.loads(
        run(
            checkpoint, "--method", "self_extend", "--target", "2x", "--out", str(tmp_path / "out"), "--servers", "--json"
        ).stdout
    )
    assert (said["trained_length"], said["tokens"], said["factor"]) == (32, 64, 2.0)
    assert said["export"]["form"] == "lengthen" and "2 regions" in said["export"]["why"]
    assert said["gap"] < 1e-4 and [server["arguments"] for server in said["servers"]] == [[], [], []]
    assert (tmp_path / "out" / "lengthen.json").is_file()


def test_a_dry_run_proves_and_writes_nothing(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = run(checkpoint, "--method", "resonance", "--target", "96", "--dry-run").stdout
    assert "Nothing was written" in text and "longrope" in text and "96 / 32 = 3" in text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--method", "yarm", "--factor", "4"), "Did you mean 'yarn'"),
        (("--method", "yarn", "--factor", "4"), "--out DIR"),
        (("--method", "yarn", "--factor", "4", "--out", "{here}"), "replaces nothing"),
        (("--method", "yarn", "--factor", "4", "--out", "{here}/new", "--form", "onnx"), "no form"),
        (("--method", "yarn", "--factor", "4", "--dry-run", "--dtype", "int4"), "no dtype"),
    ],
)
def test_what_cannot_work_is_refused_before_the_model_is_loaded(options, reason, checkpoint, monkeypatch):
    monkeypatch.setattr("lengthen.hf.load", lambda *_, **__: pytest.fail("the model was loaded first"))
    with pytest.raises(UsageError, match=reason):
        run(checkpoint, *(word.format(here=checkpoint) for word in options))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--method", "yarn", "--factor", "4", "--target", "256"), "more than the factor"),
        (("--method", "yarn", "--factor", "0.5"), "at least 1"),
        (("--method", "yarn:factor=2", "--factor", "4"), "Give it once"),
        (("--method", "yarn", "--target", "16"), "16"),
        (("--method", "yarn", "--target", "long"), "no length"),
        (("--method", "pi", "--factor", "2", "--layers", "chunked_attention"), "chunked_attention"),
    ],
)
def test_contradictions_are_refused(options, reason, checkpoint):
    with pytest.raises((UsageError, Refusal), match=reason):
        run(checkpoint, *options, "--dry-run")
