"""Dated files: the same rows for people and for programs, with the machine under them."""

import json
from datetime import date

import pytest

from lengthen.bench.columns import ATTENTION, MODEL
from lengthen.bench.machine import facts, flags
from lengthen.bench.reports import Report, cells, terminal
from lengthen.core import UsageError

ROW = {
    "method": "alibi", "backend": "sdpa", "dtype": "float32", "length": 64, "kind": "forward", "reason": None, "seconds": 0.00125,
    "ratio": 1.5, "ratio_low": 1.4, "ratio_high": 1.625, "ideal": 1.0, "over_ideal": 1.5, "extra_bytes": 3 << 20, "error": 1e-6,
    "peer_error": float("inf"), "gradient_error": None, "peer_gradient_error": None,
}  # fmt: skip
REFUSED = {**dict.fromkeys(ROW), "method": "fox", "reason": "It needs content."}


def test_cells_are_in_their_units():
    found = dict(zip([c[0] for c in ATTENTION.columns], cells(ATTENTION.columns, ROW), strict=True))
    assert (found["ms"], found["extra MiB"], found["quartiles"], found["gradient error"]) == ("1.25", "3", "1.40 to 1.62", "")
    assert cells(ATTENTION.columns, REFUSED)[-1] == "It needs content."


def test_a_report_is_dated_and_has_both_forms(tmp_path):
    report = Report.dated(tmp_path / "deep" / "alibi.md", ATTENTION, {"cpu": "a CPU", "commit": None})
    assert report.path.name == f"{date.today()}-alibi.md" and report.path.exists()
    report.write([ROW, REFUSED])
    text = report.path.read_text()
    assert "| alibi | sdpa |" in text and "It needs content. |" in text and "- cpu: a CPU" in text and "commit" not in text
    first, *rows = (json.loads(line) for line in report.path.with_suffix(".jsonl").read_text().splitlines())
    assert first["facts"]["cpu"] == "a CPU" and [r["method"] for r in rows] == ["alibi", "fox"]
    assert rows[0]["ratio"] == 1.5 and rows[0]["peer_error"] is None  # JSON knows no infinity


def test_a_report_that_is_no_markdown_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"'alibi\.md'"):
        Report.dated(tmp_path / "alibi.txt", ATTENTION, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("page", [ATTENTION, MODEL], ids=lambda p: p.title)
def test_the_terminal_table_fits_80_columns(page):
    from io import StringIO

    from rich.console import Console

    row = (
        {key: None for _, key, _ in page.columns} | ROW | {"task": "training", "peer": "plain causal", "tokens_per_s": 123456.0}
    )
    row |= {
        "speed": 1.0,
        "speed_low": 0.9,
        "speed_high": 1.1,
        "seconds": 0.123456,
        "ratio": 12.3,
        "dtype": "bfloat16",
        "length": 16384,
    }
    out = StringIO()
    Console(file=out, width=80).print(*terminal(page, [row, REFUSED | {"peer": None}]), sep="\n")
    assert "…" not in out.getvalue() and "fox: It needs content." in out.getvalue() and "bfloat16" in out.getvalue()


def test_the_machine_is_named():
    found = facts("cpu", threads=3)
    assert {"cpu", "cores", "torch", "python", "cpu_flags", "cpu_capability", "native", "time"} <= found.keys()
    assert found["threads"] == 3 and set(flags()) == set(found["cpu_flags"].split())
