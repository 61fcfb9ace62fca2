"""Records survive crashes, full disks and numbers that are not numbers."""

import json
import math
import os
import sys
from dataclasses import replace

import numpy as np
import pytest

from lengthen.core import LengthenError, UsageError
from lengthen.evaluate import Record, append_records, read_records, with_extra, write_records

ROW = Record(
    run="r",
    method="rope+window:tokens=64",
    seed=0,
    train_length=128,
    eval_length=256,
    protocol="sliding",
    control="none",
    task="language_modelling",
    metric="nats_per_token",
    value=1.25,
    n=24,
    low=1.0,
    high=1.5,
    params={"base": 10000.0},
    extra={"text": "two\nlines \u2028 é"},
)


def test_rows_come_back_as_they_were(tmp_path):
    path = tmp_path / "deep" / "records.jsonl"
    rows = [ROW, replace(ROW, seed=None, low=None, high=None)]
    write_records(path, rows)
    assert read_records(path) == rows
    append_records(path, [with_extra(ROW, commit="abc")])
    assert read_records(path) == [*rows, replace(ROW, extra={**ROW.extra, "commit": "abc"})]
    write_records(path, [ROW])
    assert read_records(path) == [ROW]


def test_append_starts_a_file_and_mends_a_missing_line_end(tmp_path):
    path = tmp_path / "records.jsonl"
    append_records(path, [ROW])
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    append_records(path, [ROW])
    assert read_records(path) == [ROW, ROW]


def test_numbers_that_are_not_finite_become_null_with_a_reason(tmp_path):
    path = tmp_path / "records.jsonl"
    write_records(path, [replace(ROW, value=math.nan, high=np.inf, reason="diverged", extra={"a": [1.0, -math.inf]})])
    row = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert row["value"] is None and row["high"] is None and row["extra"] == {"a": [1.0, None]}
    assert row["reason"] == "diverged; value is nan; high is inf; extra.a[1] is -inf"
    assert read_records(path)[0].value is None


def test_numpy_numbers_are_written_as_numbers(tmp_path):
    path = tmp_path / "records.jsonl"
    write_records(path, [replace(ROW, value=np.float64(2.5), n=np.int64(3), extra={"x": np.arange(2)})])
    assert read_records(path) == [replace(ROW, value=2.5, n=3, extra={"x": [0, 1]})]


def test_what_is_not_data_is_refused_before_the_file_is_touched(tmp_path):
    path = tmp_path / "records.jsonl"
    write_records(path, [ROW])
    with pytest.raises(UsageError, match="got <object"):
        append_records(path, [replace(ROW, extra={"x": object()})])
    assert read_records(path) == [ROW]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_an_interrupted_write_leaves_the_previous_file_whole(tmp_path, monkeypatch, call):
    path = tmp_path / "records.jsonl"
    write_records(path, [ROW])

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(LengthenError, match=r"records.jsonl: No space left on device. What was there before is whole"):
        append_records(path, [ROW])
    monkeypatch.undo()
    assert read_records(path) == [ROW]
    assert os.listdir(tmp_path) == ["records.jsonl"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs setrlimit")
def test_a_full_disk_leaves_the_previous_file_whole(tmp_path):
    import resource

    path = tmp_path / "records.jsonl"
    write_records(path, [ROW])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
    try:
        with pytest.raises(LengthenError, match=r"records.jsonl: File too large. What was there before is whole"):
            append_records(path, [ROW] * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert read_records(path) == [ROW]
    assert os.listdir(tmp_path) == ["records.jsonl"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"run": ', "Line 2 of .* not strict JSON"),
        (b'{"run": NaN}', "Line 2 of .*NaN is not a JSON number"),
        (b"[1]", "Line 2 of .*holds a list"),
        (b'{"run": "r"}', "Line 2 of .*lacks 'control'"),
        (b"[" * 100_000, "Line 2 of .*recursion"),
        (b"\xff", "not UTF-8: byte 0xff at offset"),
    ],
)
def test_corrupt_lines_are_named(tmp_path, line, words):
    path = tmp_path / "records.jsonl"
    write_records(path, [ROW])
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(UsageError, match=words):
        read_records(path)


def test_a_field_that_no_record_has_is_named(tmp_path):
    path = tmp_path / "records.jsonl"
    write_records(path, [ROW])
    path.write_text(path.read_text().replace('"run"', '"runn"'))
    with pytest.raises(UsageError, match="lacks 'run', has 'runn'"):
        read_records(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match="no records file"):
        read_records(tmp_path / "none.jsonl")


@pytest.mark.parametrize(("field", "value"), [("value", "1.25"), ("n", 2.5), ("eval_length", None), ("low", [])])
def test_a_field_that_holds_no_number_is_named(tmp_path, field, value):
    path = tmp_path / "records.jsonl"
    write_records(path, [replace(ROW, **{field: value})])
    with pytest.raises(UsageError, match=f"Line 1 of .*its '{field}' is no number"):
        read_records(path)
