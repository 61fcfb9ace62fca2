"""`lengthen bench` as a person runs it."""

import json
from datetime import date

import pytest
from typer.testing import CliRunner

from lengthen.cli.app import app
from lengthen.core import UsageError

QUICK = ("--lengths", "64", "--head-size", "8", "--threads", "1", "--repeats", "3", "--no-memory")


def run(*args: str):
    return CliRunner().invoke(app, ["bench", *args], catch_exceptions=False)


@pytest.mark.parametrize("verb", ["attention", "model"])
def test_help_has_two_examples(verb):
    page = run(verb, "--help").output
    assert "Examples" in page and page.count(f"lengthen bench {verb}") >= 2 and "--json" in page


def test_attention_prints_rows_as_json_and_takes_several_values_at_once():
    done = run("attention", "--methods", "alibi", "fox", "--backend", "sdpa,blocked", "--passes", "forward", *QUICK, "--json")
    rows = json.loads(done.output)
    assert done.exit_code == 0
    assert [(r["method"], r["backend"]) for r in rows] == [
        ("alibi", "sdpa"), ("alibi", "blocked"), ("fox", "sdpa"), ("fox", "blocked"),
    ]  # fmt: skip
    assert rows[2]["reason"] and rows[2]["ratio"] is None and rows[3]["ratio"] > 0


def test_the_table_and_the_report_hold_the_same_rows(tmp_path):
    report = tmp_path / "alibi.md"
    shown = run("attention", "--methods", "alibi", "--passes", "forward,learned", *QUICK, "--report", str(report)).output
    written = tmp_path / f"{date.today()}-alibi.md"
    assert "alibi has no weights to learn." in shown and str(written) in shown.replace("\n", "")
    rows = [json.loads(line) for line in written.with_suffix(".jsonl").read_text().splitlines()]
    assert rows[0]["facts"]["threads"] == 1 and [r["kind"] for r in rows[1:]] == ["forward", "learned"]


def test_an_interruption_keeps_the_rows(monkeypatch, tmp_path):
    import lengthen.bench

    whole = lengthen.bench.bench_attention

    def interrupted(bench, progress):
        yield next(whole(bench, progress))
        raise KeyboardInterrupt

    monkeypatch.setattr(lengthen.bench, "bench_attention", interrupted)
    done = run("attention", "--methods", "alibi", *QUICK, "--json", "--report", str(tmp_path / "x.md"))
    assert done.exit_code == 130 and "1 rows were measured" in done.stderr
    assert [r["kind"] for r in json.loads(done.stdout)] == ["forward"]
    assert len((tmp_path / f"{date.today()}-x.jsonl").read_text().splitlines()) == 2


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_models_print_rows_as_json():
    small = ("--size", "tiny", "--length", "32", "--rounds", "3", "--threads", "1")
    rows = json.loads(run("model", "--tasks", "training", "--methods", "alibi", *small, "--json").output)
    assert {r["peer"] for r in rows} >= {"plain causal", "x-transformers"} and rows[0]["speed"] > 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("attention", "--methods", "alibbi"), "'alibi'"),
        (("attention", "--backend", "dens"), "'dense'"),
        (("attention", "--lengths", "1k"), "'1k' is not a number"),
        (("attention", "--lengths", "4000000", "--backend", "dense"), "GiB are free"),
        (("attention", "--report", "x.txt"), r"'x\.md'"),
        (("model", "--size", "10k"), "'10m'"),
    ],
)
def test_bad_input_is_a_sentence(args, said):
    with pytest.raises(UsageError, match=said):
        run(*args)
