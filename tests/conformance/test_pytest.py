"""The decorator and the plugin as another project uses them: its own pytest run, in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE = """
import pytest, torch
from lengthen.conformance import parametrize_with_checks

class Far:
    '''Rewards far keys.'''
    def bias(self, q_positions, k_positions):
        return 0.5 * (q_positions[:, None] - k_positions).abs().float()[None]

class Near(Far):
    def bias(self, q_positions, k_positions):
        return -super().bias(q_positions, k_positions)
"""


def run(folder: Path, tests: str) -> tuple[dict[str, int], str]:
    """Outcome -> count of a pytest run over that file, and what it printed."""
    (folder / "test_mine.py").write_text(MODULE + tests)
    # Blocked by its entry point's name, where the package was installed with it, and loaded by its path.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:lengthen",
        "-p",
        "lengthen.pytest_plugin",
        "-p",
        "no:cacheprovider",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([*command, "--strict-markers", "-rA"], cwd=folder, env=environment, capture_output=True, text=True)
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr
    return {what: int(n) for n, what in re.findall(r"(\d+) (\w+)", last.partition(" in ")[0])}, done.stdout


def test_the_decorator_takes_encodings_with_expected_failures(tmp_path):
    counts, out = run(
        tmp_path,
        """
@parametrize_with_checks(Near, Far, checks=["decay", "alignment"], expected={"alignment": "no"})
def test_each(subject, check):
    check(subject).confirm()
""",
    )
    # Near and Far both align, so an expected failure that passes is reported; Far fails decay.
    assert counts == {"failed": 3, "passed": 1}, out
    assert "far keys" in out


def test_the_mark_runs_once_per_check(tmp_path):
    counts, out = run(
        tmp_path,
        """
@pytest.mark.lengthen_check(Far, expected={"decay": "the sign is wanted"})
def test_mine(lengthen_check):
    lengthen_check()
""",
    )
    assert counts == {"passed": 10, "xfailed": 1}, out
    assert "the sign is wanted" in out


def test_models_and_methods_stand_beside_each_other(tmp_path):
    counts, out = run(
        tmp_path,
        """
def model():
    from lengthen.core import build
    from lengthen.models import Decoder, DecoderConfig
    return Decoder(DecoderConfig(vocab=40), build("rope"))

@parametrize_with_checks("nope", model, checks=["prefix"])
def test_each(subject, check):
    assert check.name == "prefix"
    check(subject).confirm()
""",
    )
    assert counts == {"passed": 2}, out


def test_the_plugin_imports_nothing_heavy():
    code = "import sys, lengthen.pytest_plugin; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_expected_check_is_told():
    from lengthen.conformance import parametrize_with_checks
    from lengthen.core import UnknownNameError

    with pytest.raises(UnknownNameError, match="'prefix'"):
        parametrize_with_checks("rope", expected={"prefx": "no"})
