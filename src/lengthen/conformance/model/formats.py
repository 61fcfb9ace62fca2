"""A report as a table for the terminal and as JUnit XML."""

import xml.etree.ElementTree as xml
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .verdict import Report, Verdict

MARKS = {
    "pass": "[green]pass[/]",
    "fail": "[bold red]fail[/]",
    "error": "[bold red]error[/]",
    "expected failure": "[yellow]expected[/]",
    "not applicable": "[dim]n/a[/]",
}


def number(value: float | None) -> str:
    """Three digits, or nothing where nothing was measured."""
    return "" if value is None else f"{value:.3g}"


def table(report: "Report") -> Any:
    """For rich: a row per check, and below what failed what it asserts, what that means and the usual cause."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    made = Table("check", "verdict", box=box.SIMPLE_HEAD, title=report.subject)
    for name in ("measured", "allowed"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("what was seen", overflow="fold", ratio=1)
    for v in report.verdicts:
        made.add_row(v.check, MARKS[v.outcome], number(v.error), number(v.tolerance), Text(v.reason))
    words = [_words(v) for v in report.failures]
    return Group(made, *words, Text(report.summary(), style="bold"))


def _words(v: "Verdict") -> Any:
    from rich.text import Text

    said = f"\n  {v.asserts}\n  Here: {v.measured()}{v.reason}\n  {v.meaning}\n  Usual cause: {v.cause}\n"
    return Text.assemble((v.check, "bold red"), said)


def junit(reports: Iterable["Report"]) -> str:
    """JUnit XML: a test suite per subject, a test case per check. An expected failure counts as skipped."""
    root = xml.Element("testsuites", name="lengthen check")
    for report in reports:
        counts = report.counts()
        skipped = counts.get("not applicable", 0) + counts.get("expected failure", 0)
        numbers = {"failures": counts.get("fail", 0), "errors": counts.get("error", 0), "skipped": skipped}
        seconds = sum(v.seconds for v in report.verdicts)
        suite = xml.SubElement(root, "testsuite", name=report.subject, tests=str(len(report.verdicts)), time=f"{seconds:.3f}")
        suite.attrib |= {name: str(count) for name, count in numbers.items()}
        for verdict in report.verdicts:
            _case(suite, report.subject, verdict)
    xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + xml.tostring(root, encoding="unicode") + "\n"


KINDS = {"fail": "failure", "error": "error", "expected failure": "skipped", "not applicable": "skipped"}


def _case(suite: xml.Element, subject: str, v: "Verdict") -> None:
    case = xml.SubElement(suite, "testcase", classname=_written(subject), name=v.check, time=f"{v.seconds:.3f}")
    if v.outcome in KINDS:
        found = xml.SubElement(case, KINDS[v.outcome], message=_written(f"{v.measured()}{v.reason}"))
        found.text = _written(f"{v.meaning} Usual cause: {v.cause}") if v.bad else None


def _written(text: str) -> str:
    """Without the control characters that XML cannot hold."""
    return "".join(c for c in text if c.isprintable() or c in "\n\t")
