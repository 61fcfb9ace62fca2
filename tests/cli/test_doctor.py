"""`lengthen doctor` as a person runs it."""

import json

from typer.testing import CliRunner

from lengthen.bench import installation
from lengthen.bench.installation import Finding
from lengthen.cli.app import app


def run(*args: str):
    return CliRunner().invoke(app, ["doctor", *args], catch_exceptions=False)


def test_help_has_two_examples():
    page = run("--help").output
    assert page.count("lengthen doctor") >= 2 and "--json" in page


def test_it_prints_findings_and_ends_well():
    done = run("--json")
    rows = {(r["topic"], r["name"]): r for r in json.loads(done.output)}
    assert done.exit_code == 0 and rows["versions", "torch"]["state"] == "ok"
    assert "native kernel" in run().output


def test_only_a_broken_core_ends_badly(monkeypatch):
    said = [Finding("optional packages", "gguf", "missing", "not installed", "pip install gguf")]
    monkeypatch.setattr(installation, "examine", lambda: said)
    assert run().exit_code == 0
    said.append(Finding("backends", "dense on cpu", "broken", "wrong"))
    assert run().exit_code == 1
