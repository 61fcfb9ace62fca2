"""`lengthen advise` as a person runs it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner
from wordy import llama, tokenizer, write_texts

from lengthen.cli.app import app
from lengthen.core import UsageError


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A checkpoint and texts."""
    folder = tmp_path_factory.mktemp("advise")
    llama().save_pretrained(folder / "model")
    tokenizer().save_pretrained(folder / "model")
    write_texts(folder / "texts")
    return folder


def run(place: Path, out: str, *args: str, target: str = "4x"):
    fixed = ["advise", str(place / "model"), "--target", target, "--data", str(place / "texts"), "--out", str(place / out)]
    return CliRunner().invoke(app, [*fixed, "--documents", "1", *args], catch_exceptions=False)


def test_it_prints_tables_sentences_and_a_line_to_copy_and_writes_a_page(place):
    said = run(place, "table", "--methods", "yarn", "pi", "--html", str(place / "page.html")).output
    for word in ("yarn", "pi", "none", "decode", "is ahead of", "95% interval"):
        assert word in said
    advice = json.loads((place / "table" / "advice.json").read_text())
    assert advice["command"] is None or advice["command"] in said
    page = (place / "page.html").read_text(encoding="utf-8")
    assert "yarn" in page and "Rank:" in page and "<script src=" not in page


def test_json_is_the_whole_advice_and_nothing_else(place):
    found = json.loads(run(place, "json", "--methods", "yarn,ntk:factor=6", "--json").stdout)
    assert {r["method"] for r in found["rows"]} == {"none", "yarn", "ntk:factor=6"}
    row = found["rows"][0]
    assert {
        "inside",
        "lost",
        "beyond",
        "score",
        "near",
        "far",
        "decode",
        "cache_bytes",
        "needs_tuning",
        "readers",
        "sees",
    } <= row.keys()
    assert found["trained"] == 64 and found["target"] == 256 and found["recommended"] in {"none", "yarn", "ntk:factor=6"}


def test_it_goes_on_with_resume_alone(place):
    run(place, "again", "--methods", "yarn", "--json")
    with pytest.raises(UsageError, match="--resume"):
        run(place, "again", "--methods", "yarn", "--json")
    found = json.loads(run(place, "again", "--methods", "pi", "yarn", "--json", "--resume").stdout)
    assert len(found["rows"]) == 3


@pytest.mark.parametrize(
    ("args", "match"),
    [
        (["--budget", "soon"], "no time"),
        (["--methods", "yarm"], "Did you mean 'yarn'"),
        (["--dtype", "floaty"], "type of weights"),
    ],
)
def test_wrong_requests_are_refused_before_the_checkpoint_is_loaded(place, args, match, monkeypatch):
    monkeypatch.setattr("lengthen.hf.load", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(UsageError, match=match):
        run(place, "refused", *args)


def test_help_has_two_examples():
    page = CliRunner().invoke(app, ["advise", "--help"]).output
    assert "Examples" in page and page.count("lengthen advise") >= 2 and "--json" in page
