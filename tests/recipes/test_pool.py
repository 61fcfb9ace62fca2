"""Jobs side by side: order, errors, and nothing left behind when the parent is killed."""

import os
import signal
import subprocess
import sys
import time

import pytest

from lengthen.recipes.pool import Tick, run_all

PARENT = """
import os, sys, time
from lengthen.recipes.pool import run_all
sys.path.insert(0, {folder!r})
from jobs import wait_for_ever
if __name__ == "__main__":
    run_all(wait_for_ever, [({folder!r}, n) for n in range(2)], 2, False)
"""
JOBS = """
import os, time
def wait_for_ever(folder, n, report):
    open(f"{folder}/{n}.pid", "w").write(str(os.getpid()))
    time.sleep(600)
"""


def square(n: int, report) -> tuple[int, int]:
    report(Tick("job", "square", 1, 1))
    if n < 0:
        raise ValueError(f"{n} is negative")
    return n * n, os.getpid()


@pytest.mark.parametrize("side_by_side", [1, 2])
def test_results_come_in_order(side_by_side):
    found = run_all(square, [(3,), (4,), (5,)], side_by_side, show=False)
    assert [n for n, _ in found] == [9, 16, 25]
    assert len({pid for _, pid in found}) == (1 if side_by_side == 1 else 3)


@pytest.mark.parametrize("side_by_side", [1, 2])
def test_an_error_of_a_job_is_its_result_and_the_others_go_on(side_by_side):
    one, error, two = run_all(square, [(1,), (-1,), (2,)], side_by_side, show=False)
    assert (one[0], two[0]) == (1, 4) and isinstance(error, ValueError) and "-1 is negative" in str(error)


def alive(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().split(")")[1].split()[0] != "Z"


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="reads /proc")
def test_a_killed_parent_leaves_no_worker_behind(tmp_path):
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "parent.py").write_text(PARENT.format(folder=str(tmp_path)))
    parent = subprocess.Popen([sys.executable, tmp_path / "parent.py"])
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("*.pid"))) < 2 or any(not p.read_text() for p in tmp_path.glob("*.pid")):
        assert time.monotonic() < deadline, "the workers did not start"
        time.sleep(0.1)
    pids = [int(p.read_text()) for p in tmp_path.glob("*.pid")]
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    left = pids
    while left and time.monotonic() < deadline:
        left = [p for p in left if os.path.isdir(f"/proc/{p}") and alive(p)]
        time.sleep(0.1)
    assert not left
