"""Rows of attention: every combination, its fields, refusals and bad input."""

from dataclasses import asdict

import pytest
import torch

from lengthen.backends.native.build import kernel
from lengthen.bench import AttentionBench, bench_attention
from lengthen.bench import capacity as capacity_module
from lengthen.core import UsageError

QUICK = {"lengths": (64,), "head_size": 8, "threads": 1, "repeats": 3, "memory": False}


def test_a_row_for_every_method_backend_type_length_and_pass():
    bench = AttentionBench(("alibi", "t5"), dtypes=("float32", "bfloat16"), backends=("sdpa", "dense"), **QUICK)
    rows = list(bench_attention(bench))
    seen = {(r.method, r.backend, r.dtype, r.length, r.kind) for r in rows}
    assert len(rows) == len(seen) == 2 * 2 * 2 * 1 * 4
    for row in rows:
        if row.kind == "learned" and row.method == "alibi":
            assert row.reason == "alibi has no weights to learn." and row.ratio is None
            continue
        assert row.reason is None and row.rounds == 3 and row.seconds > 0 and row.peer_seconds > 0
        assert row.ratio_low <= row.ratio <= row.ratio_high and row.over_ideal == row.ratio / row.ideal == row.ratio
        assert row.error < (2e-6 if row.dtype == "float32" else 3e-2) and row.peer_error > 0
        assert (row.gradient_error is not None) == (row.kind in ("backward", "learned"))


def test_the_chosen_backend_is_named_and_a_refusal_is_a_row_with_its_reason():
    chosen, fox = bench_attention(AttentionBench(("alibi", "fox"), passes=("forward",), **QUICK))
    assert chosen.backend == ("native" if kernel().built else "sdpa") and fox.backend == "blocked"
    (row,) = bench_attention(AttentionBench(("fox",), backends=("sdpa",), passes=("forward",), **QUICK))
    assert row.backend == "sdpa" and row.ratio is None and "content" in row.reason and row.reason.endswith(".")
    (row,) = bench_attention(AttentionBench(("rope",), backends=("flex",), passes=("backward",), **QUICK))
    assert "no backward on a CPU" in row.reason


def test_a_window_stands_beside_its_ideal_share():
    (row,) = bench_attention(AttentionBench(("rope+window:tokens=16",), passes=("forward",), **QUICK))
    assert row.ideal == pytest.approx((16 * 64 - 16 * 15 / 2) / (64 * 65 / 2))
    assert row.over_ideal == pytest.approx(row.ratio / row.ideal)


def test_memory_is_measured_beside():
    (row,) = bench_attention(AttentionBench(("alibi",), passes=("forward",), **{**QUICK, "memory": True}))
    assert 0 <= row.extra_bytes < 64 << 20


def test_threads_are_as_asked_and_restored():
    before, seen = torch.get_num_threads(), []
    bench = AttentionBench(("nope",), passes=("forward",), **{**QUICK, "threads": before + 1})
    list(bench_attention(bench, lambda done, total, what: seen.append((done, total, torch.get_num_threads()))))
    assert seen[0] == (0, 1, before + 1) and torch.get_num_threads() == before


def test_what_was_measured_before_an_interruption_is_kept():
    rows = []

    def interrupt(done: int, total: int, what: str) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        for row in bench_attention(AttentionBench(("alibi",), **QUICK), interrupt):
            rows.append(row)
    assert [r.kind for r in rows] == ["forward", "backward"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"methods": ("alibbi",)}, "'alibi'"),
        ({"backends": ("dens",)}, "'dense'"),
        ({"dtypes": ("float23",)}, "'float32'"),
        ({"passes": ("backwards",)}, "no pass named 'backwards'"),
        ({"clock": "well"}, "'wall'"),
        ({"device": "cdua"}, "'cuda'"),
        ({"lengths": (64, 0)}, "at least 1, got 0"),
        ({"repeats": 0}, "repeats"),
        ({"budget": -1.0}, "budget"),
        ({"heads": 8, "groups": 3}, "8 query heads cannot share 3"),
    ],
)
def test_bad_input_is_named(given, said):
    with pytest.raises(UsageError, match=said):
        AttentionBench(**{"methods": ("alibi",), **given})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match="no CUDA device"):
        AttentionBench(("alibi",), device="cuda")


def test_what_cannot_fit_is_refused_before_anything_runs(monkeypatch):
    monkeypatch.setattr(capacity_module, "available", lambda device: 8 << 30)
    bench = AttentionBench(("alibi",), lengths=(64, 32768), backends=("dense",))
    with pytest.raises(UsageError, match=r"dense backend at 32768 tokens .* 8\.0 GiB are free"):
        next(iter(bench_attention(bench)))
    AttentionBench(("alibi",), lengths=(64, 32768), backends=("sdpa",)).require_room()


def test_rows_are_plain_data():
    (row,) = bench_attention(AttentionBench(("nope",), passes=("decode",), **QUICK))
    assert {"method", "backend", "dtype", "length", "kind", "ratio", "error", "extra_bytes"} <= asdict(row).keys()
