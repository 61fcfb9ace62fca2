"""The page of what `lengthen check` finds: its parts, and that the one in docs is of this tree."""

from datetime import date
from math import inf
from pathlib import Path

import pytest

from lengthen.conformance.model.verdict import Report, Verdict
from lengthen.report.check_page import page, read_script, read_scripts, unshown

ROOT = Path(__file__).parents[2]
FOLDERS = [ROOT / "tests" / "conformance" / room / "scripts" for room in ("model", "adapters")]
FAILED = {"asserts": "It holds.", "meaning": "It does not.", "cause": "A sign."}


def report(subject: str, *verdicts: Verdict) -> Report:
    return Report(subject, verdicts, {"torch": "2.13", subject.split()[0]: "1.2"})


REPORTS = (
    report("ours Small", Verdict("decay", "fail", inf, 0.5, "keys | far", **FAILED), Verdict("shift", "pass", 0.0, 1.0)),
    report("ours Large", Verdict("decay", "error", reason="RuntimeError: no", **FAILED), Verdict("cache", "not applicable")),
)


def script(folder: Path, header: str) -> Path:
    path = folder / "shows.py"
    path.write_text(f'"""It shows.\n{header}\n"""\n\nimport torch\n\nprint(3.0)\n')
    return path


def test_a_failure_stands_with_its_numbers_and_its_script(tmp_path):
    found = read_script(script(tmp_path, "Subject: ours Small; check: decay, other; right: 0.5"))
    text = page(REPORTS, (), [found], "the command", date(2026, 1, 2))
    assert "2026-01-02" in text
    assert "ours 1.2, torch 2.13" in text
    assert "| Small | 1 | 1 | 0 | [decay](#models-ours-decay) |" in text
    assert "| Large | 0 | 1 | 1 | [decay](#models-ours-decay) |" in text
    assert "| Small | not finite | 0.5 | keys \\| far |" in text
    assert "| Large | raised |  | RuntimeError: no |" in text
    assert "Asserted: It holds. It does not. Usual cause: A sign." in text
    assert text.count("print(3.0)") == 1
    assert "at most 0.5" in text


def test_what_no_script_shows_is_listed(tmp_path):
    found = read_script(script(tmp_path, "Subject: ours Small; check: decay; right: 0.5"))
    assert unshown(REPORTS, [found]) == []
    assert unshown(REPORTS, []) == [("ours", "decay")]


def test_a_script_without_a_header_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"shows\.py does not begin"):
        read_script(script(tmp_path, "Subject of nothing"))


def test_the_page_in_docs_shows_the_scripts_of_this_tree():
    text = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    scripts = read_scripts(FOLDERS)
    assert scripts
    missing = [s.path.name for s in scripts if s.text not in text]
    assert not missing, f"run `python -m lengthen.recipes.check_survey` again: {missing}"
    sections = [part for part in text.split("\n## ") if part.startswith(("Models ", "Encodings "))]
    bare = [
        part.split("\n")[0]
        for part in sections
        if "\n|" in part and "```python" not in part and "The script stands" not in part
    ]
    assert not bare
