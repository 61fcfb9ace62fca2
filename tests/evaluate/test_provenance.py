"""Provenance names versions and the commit, never the machine or its user."""

import getpass
import json
import platform
import socket
import subprocess
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from lengthen.evaluate import provenance
from lengthen.evaluate.provenance import git_state


def git(folder: Path, *command: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *command], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def test_versions_and_what_the_user_gave_are_kept():
    found = provenance(data="demo")
    assert found["torch"] == version("torch") and found["data"] == "demo" and found["threads"] >= 1
    assert datetime.fromisoformat(found["time"]).utcoffset().total_seconds() == 0
    json.dumps(found, allow_nan=False)


def test_the_machine_and_its_user_are_not_named(monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "secret-host")
    monkeypatch.setattr(socket, "gethostname", lambda: "secret-host")
    words = json.dumps(provenance())
    assert "secret-host" not in words
    assert str(Path.home()) not in words and str(Path.cwd()) not in words
    assert getpass.getuser() not in words.split('"')


def test_the_commit_is_that_of_the_tree_that_tracks_the_folder(tmp_path):
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "a.py").write_text("1")
    assert git_state(folder) == {"commit": None, "dirty": None}
    git(tmp_path, "init")
    assert git_state(folder) == {"commit": None, "dirty": None}
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    assert git_state(folder) == {"commit": git(tmp_path, "rev-parse", "HEAD"), "dirty": False}
    (folder / "a.py").write_text("2")
    assert git_state(folder)["dirty"] is True
    installed = tmp_path / "environment" / "package"
    installed.mkdir(parents=True)
    (installed / "a.py").write_text("1")
    assert git_state(installed) == {"commit": None, "dirty": None}
