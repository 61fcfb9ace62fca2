"""`lengthen check` as a person runs it."""

import json
import xml.etree.ElementTree as xml

import pytest
from typer.testing import CliRunner

from lengthen.cli.app import app
from lengthen.core.errors import LengthenError, UsageError

from .subjects import llama


def run(*args: str):
    return CliRunner().invoke(app, ["check", *args], catch_exceptions=False)


def test_json_and_exit_status():
    good = run("--tiny", "llama", "--only", "prefix", "repeatable", "--json")
    assert good.exit_code == 0
    found = json.loads(good.stdout)
    assert [v["outcome"] for v in found["verdicts"]] == ["pass", "pass"]
    assert found["subject"] == "llama (tiny)"
    bad = run("--tiny", "llama", "--only", "position_gaps", "--json")
    assert bad.exit_code == 1
    assert json.loads(bad.stdout)["verdicts"][0]["meaning"]


def test_a_known_failure_does_not_count():
    given = ("--tiny", "llama", "--only", "position_gaps", "prefix")
    assert run(*given, "--skip", "position_gaps").exit_code == 0
    told = run(*given, "--expect", "position_gaps=we never skip, or so we say")
    assert told.exit_code == 0
    assert "1 failed as expected" in told.stdout


def test_a_checkpoint_of_a_folder_and_the_files(tmp_path):
    llama().save_pretrained(tmp_path / "model")
    files = ("--junit", str(tmp_path / "out.xml"), "--html", str(tmp_path / "out.html"))
    told = run(str(tmp_path / "model"), "--only", "prefix", "packed_ones_mask", *files)
    assert told.exit_code == 1
    assert "Usual cause" in told.stdout and "1 passed, 1 failed" in told.stdout
    assert xml.parse(tmp_path / "out.xml").getroot().find("testsuite").get("failures") == "1"
    assert "packed_ones_mask" in (tmp_path / "out.html").read_text(encoding="utf-8")
    assert run(str(tmp_path / "model"), "--tiny", "--only", "prefix").exit_code == 0


def test_a_module_of_a_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n"
        "class Mine(torch.nn.Module):\n"
        "    def bias(self, q_positions, k_positions):\n"
        "        return -0.5 * (q_positions[:, None] - k_positions[None]).abs().float()[None]\n"
    )
    assert run("--module", f"{file}:Mine", "--only", "repeatable").exit_code == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "Name one thing"),
        (("llama", "--module", "a.py:b"), "Name one thing"),
        (("--tiny", "--module", "a.py:b"), "Leave it out"),
        (("--tiny", "llama", "--expect", "prefix"), "CHECK=REASON"),
        (("--tiny", "llama", "--only", "prefx"), "Did you mean 'prefix'"),
        (("--module", "nowhere.py:b"), "There is no file"),
    ],
)
def test_wrong_requests_are_sentences(given, said):
    with pytest.raises(UsageError, match=said):
        run(*given)


def test_a_folder_without_a_model_is_a_sentence(tmp_path):
    with pytest.raises(UsageError):
        run(str(tmp_path))


@pytest.mark.parametrize("tiny", [(), ("--tiny",)])
def test_code_of_a_checkpoint_runs_only_when_asked(tmp_path, tiny):
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine", "AutoModelForCausalLM": "mine.Mine"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(LengthenError, match="trust_remote_code"):
        run(str(tmp_path), *tiny)
    assert not (tmp_path / "ran").exists()
