"""What an installation can do."""

from dataclasses import asdict
from importlib.metadata import PackageNotFoundError

import pytest
import torch

from lengthen.backends import BACKENDS
from lengthen.bench import installation
from lengthen.bench.installation import Finding, broken, examine, page

TOPICS = ["versions", "processor", "native kernel", "accelerator", "backends", "optional packages", "folders"]


@pytest.fixture(scope="module")
def findings():
    return examine()


def test_every_topic_is_there_and_a_sound_installation_is_not_broken(findings):
    assert list(dict.fromkeys(f.topic for f in findings)) == TOPICS
    assert not broken(findings) and {f.state for f in findings} <= {"ok", "missing"}


def test_what_is_missing_says_how_to_get_it(findings):
    for f in findings:
        if f.state == "missing" and f.name != "built":
            assert f.advice


def test_every_backend_was_tried(findings):
    seen = {f.name.split(" on ")[0] for f in findings if f.topic == "backends"}
    assert seen == set(BACKENDS)


class Wrong:
    """A backend that is off by a thousandth."""

    name, branches, value_terms = "sdpa", False, False
    serves = BACKENDS["sdpa"].serves

    def refusal(self, plan):
        return None

    def __call__(self, plan):
        return BACKENDS["dense"](plan) + 1e-3


class Crashing(Wrong):
    """A backend whose library cannot be loaded."""

    def __call__(self, plan):
        raise OSError("libfoo.so: no such file")


@pytest.mark.parametrize("bad", [Wrong(), Crashing()], ids=["wrong", "crashing"])
def test_a_chosen_backend_that_fails_is_broken_and_one_by_name_only_is_not(monkeypatch, bad):
    monkeypatch.setitem(installation.BACKENDS, "sdpa", bad)
    assert broken(list(installation._backends()))
    monkeypatch.setitem(installation.ORDER, "cpu", ("blocked", "dense"))
    assert not broken(list(installation._backends()))


def test_an_absent_package_is_missing_with_what_it_is_for(monkeypatch):
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installation, "version", version)
    rows = list(installation._packages())
    assert {r.state for r in rows} == {"missing"} and all("pip install" in r.advice for r in rows)


def test_the_page_shows_brackets_as_they_are():
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    Console(file=out, width=120).print(
        page([Finding("optional packages", "x", "missing", "no", "pip install 'lengthen[bench]'")])
    )
    assert "lengthen[bench]" in out.getvalue()


def test_it_changes_nothing(findings):
    before = torch.get_num_threads(), torch.get_rng_state()
    examine()
    assert torch.get_num_threads() == before[0] and torch.equal(torch.get_rng_state(), before[1])
    assert all(isinstance(v, str | None) for f in findings for v in asdict(f).values())
