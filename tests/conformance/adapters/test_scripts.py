"""Every verdict that the page shows with a script is confirmed by the script, which uses no code of ours."""

import ast
import io
import runpy
from contextlib import redirect_stdout
from math import isnan
from pathlib import Path

import pytest

from lengthen.recipes.check_survey import encodings, silence, surveyed
from lengthen.report.check_page import Script, read_script

pytest.importorskip("x_transformers")
pytest.importorskip("rotary_embedding_torch")
SCRIPTS = [read_script(p) for p in sorted((Path(__file__).parent / "scripts").glob("*.py"))]


def printed(script: Script) -> float:
    """The one number that the script prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        runpy.run_path(str(script.path))
    return float(out.getvalue())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.path.stem)
def test_the_verdict_is_that_of_the_script(script):
    with silence():
        error = printed(script)
        report = {**surveyed(), **encodings()}[script.subject](only=list(script.checks))
    assert not isnan(error)
    wrong = error > script.right
    assert {v.check: v.bad for v in report.verdicts} == dict.fromkeys(script.checks, wrong), error


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.path.stem)
def test_a_script_is_short_and_uses_nothing_of_ours(script):
    assert "lengthen" not in script.text
    statements = [n for n in ast.parse(script.text).body if not isinstance(n, ast.Import | ast.ImportFrom)]
    assert len(statements) <= 10
    assert len(script.text.splitlines()) <= 20
