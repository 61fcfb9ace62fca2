"""The command as a person runs it."""

import json
import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from typer.testing import CliRunner

from lengthen.cli.app import app
from lengthen.core import UsageError


def run(*args: str):
    return CliRunner().invoke(app, list(args), catch_exceptions=False)


def test_help_does_not_import_torch():
    code = "import sys, lengthen.cli.app as a; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("verb", ["compare", "list", "describe"])
def test_every_verb_has_help_with_two_examples(verb):
    page = run(verb, "--help").output
    assert "Examples" in page and page.count(f"lengthen {verb}") >= 2 and "--json" in page


def test_list_is_a_json_list_of_objects_with_name_family_and_paper():
    rows = {r["name"]: r for r in json.loads(run("list", "--json").output)}
    assert rows["alibi"]["paper"] == "arXiv:2108.12409" and rows["alibi"]["family"] == "additive bias"
    assert rows["rope"]["relative"] and not rows["sinusoidal"]["relative"]
    assert rows["kerple"]["trains"] and not rows["alibi"]["trains"]


def test_describe_computes_what_acts_where():
    about = json.loads(run("describe", "rope+alibi+window:tokens=64+log_n", "--json").output)
    assert about["acts_on"]["rotation"] == "Rotary" and about["acts_on"]["term"] == "ALiBi"
    assert "64" in about["acts_on"]["pattern"] and about["acts_on"]["temperature"] == "LogN"


def test_an_unknown_method_names_its_neighbours():
    with pytest.raises(UsageError, match="kerple"):
        run("describe", "kerpel")


def test_an_error_is_one_sentence_and_status_2():
    done = subprocess.run(
        [sys.executable, "-c", "from lengthen.cli import main; main()", "describe", "ropee"], capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stderr.startswith("lengthen: ") and "Traceback" not in done.stderr
    assert "rope" in done.stderr


def test_the_command_is_installed():
    assert any(e.value == "lengthen.cli:main" for e in entry_points(group="console_scripts") if e.name == "lengthen")
