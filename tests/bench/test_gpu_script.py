"""The prepared GPU run, on tiny sizes and a CPU: its steps, files and exit status."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"


def test_the_smoke_run_does_every_step_and_writes_both_files(tmp_path):
    command = [sys.executable, str(SCRIPT), str(tmp_path), "--device", "cpu", "--smoke"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = json.loads((tmp_path / "gpu.json").read_text())["steps"]
    assert {n: s["met"] for n, s in steps.items()} == {
        "decoding": True, "compiles": None, "speed": None, "memory": True, "right": True,
    }  # fmt: skip
    assert {r["backend"] for r in steps["right"]["rows"]} == {"sdpa", "blocked", "dense"} | _native()
    page = (tmp_path / "gpu.md").read_text()
    assert all(f"## {name}: " in page for name in steps)


def _native() -> set[str]:
    from lengthen.backends import BACKENDS

    return {"native"} & set(BACKENDS)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_so(tmp_path):
    done = subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 2 and "no CUDA device" in done.stderr and not list(tmp_path.iterdir())
