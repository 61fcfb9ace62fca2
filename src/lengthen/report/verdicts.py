"""The page of `lengthen check`: what every check of a model said; it needs no network and no other file."""

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment

from lengthen.conformance.model.formats import number
from lengthen.conformance.model.verdict import Report, Verdict
from lengthen.evaluate.records import replace_file

from .page import Grid, Mark, Section

COLOURS = {"pass": "good", "fail": "bad", "error": "bad", "expected failure": "fair", "not applicable": ""}


def verdict_page(reports: Sequence[Report], command: str = "") -> str:
    """HTML of one section per subject. command: what it was made with."""
    template = Environment(autoescape=True, trim_blocks=True).from_string((files(__package__) / "page.html").read_text("utf-8"))
    versions = {name: version for r in reports for name, version in r.versions.items()}
    return template.render(
        title="lengthen check: " + ", ".join(r.subject for r in reports),
        subtitle=", ".join(f"{name} {version}" for name, version in versions.items()),
        plotly="",
        failures=[],
        sections=[section(r) for r in reports],
        provenance=json.dumps({"command": command, "versions": versions}, indent=2),
    )


def write_verdict_page(reports: Sequence[Report], path: Path, command: str = "") -> Path:
    """Writes the page, whole or not at all."""
    replace_file(path, verdict_page(reports, command).encode())
    return path


def section(report: Report) -> Section:
    """A table of every check, and one of the failures in words."""
    rows = [[Mark(t, c) for t, c in _row(v)] for v in report.verdicts]
    tables = [Grid(("check", "verdict", "measured", "allowed", "what was seen", "what is asserted"), rows, prose=True)]
    if report.failures:
        words = [[Mark(v.check), Mark(v.meaning), Mark(v.cause)] for v in report.failures]
        tables.append(Grid(("check", "what it means", "usual cause"), words, "Failures", prose=True))
    return Section(report.subject, report.summary(), None, tables)


def _row(v: Verdict) -> list[tuple[str, str]]:
    numbers = number(v.error), number(v.tolerance)
    return [(v.check, ""), (v.outcome, COLOURS[v.outcome]), *((n, "") for n in numbers), (v.reason, ""), (v.asserts, "")]
