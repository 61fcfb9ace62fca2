"""What `lengthen check` found in public implementations, as a page in Markdown."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from math import isfinite
from pathlib import Path

from lengthen.conformance.model.verdict import Report, Verdict


@dataclass(frozen=True)
class Script:
    """A short program that prints one number: an error measured without lengthen."""

    path: Path
    shows: str
    subject: str
    checks: tuple[str, ...]
    right: float
    """The largest number that would be right."""
    text: str
    """The program, without its docstring."""


HEADER = re.compile(
    r'"""(?P<shows>.+?)\nSubject: (?P<subject>.+?); check: (?P<checks>[\w, ]+); right: (?P<right>\S+)\n"""\n+', re.S
)


def read_script(path: Path) -> Script:
    """A script with its header. Raises ValueError where the header is not of the form that the page needs."""
    text = path.read_text(encoding="utf-8")
    found = HEADER.match(text)
    if found is None:
        raise ValueError(f"{path} does not begin with a sentence and 'Subject: ...; check: ...; right: ...' in its docstring")
    shows = " ".join(found["shows"].split())
    checks = tuple(found["checks"].replace(",", " ").split())
    return Script(path, shows, found["subject"], checks, float(found["right"]), text[found.end() :].rstrip())


def read_scripts(folders: Iterable[Path]) -> list[Script]:
    """Every script of the folders, sorted by name."""
    return [read_script(p) for folder in folders for p in sorted(folder.glob("*.py")) if p.name != "__init__.py"]


def library(subject: str) -> str:
    """The first word of a subject's name."""
    return subject.split()[0]


def page(models: Sequence[Report], encodings: Sequence[Report], scripts: Sequence[Script], command: str, day: date) -> str:
    """The page: versions, tables of subjects, then every failure with its meaning, its cause and scripts."""
    parts = [_head([*models, *encodings], command, day)]
    for title, reports in (("Models", models), ("Encodings", encodings)):
        if reports:
            parts += [f"## {title}\n", *(_table(title, name, group) for name, group in by_library(reports).items())]
    shown: dict[Script, str] = {}
    for title, reports in (("Models", models), ("Encodings", encodings)):
        for (name, check), failed in _failures(reports).items():
            parts.append(_section(title, name, check, failed, _of(scripts, check, failed), shown))
    parts.append(_right([*models, *encodings], scripts))
    return "\n".join(p for p in parts if p).rstrip() + "\n"


def by_library(reports: Iterable[Report]) -> dict[str, list[Report]]:
    """The reports of each library, in their order."""
    found: dict[str, list[Report]] = {}
    for r in reports:
        found.setdefault(library(r.subject), []).append(r)
    return found


def _of(scripts: Sequence[Script], check: str, failed: Sequence[tuple[str, Verdict]]) -> list[Script]:
    """The scripts that reproduce a failure of that check by one of the subjects."""
    subjects = {name for name, _ in failed}
    return [s for s in scripts if check in s.checks and s.subject in subjects]


def unshown(reports: Iterable[Report], scripts: Sequence[Script]) -> list[tuple[str, str]]:
    """The libraries and checks with a failure that no script reproduces."""
    return [key for key, failed in _failures(reports).items() if not _of(scripts, key[1], failed)]


def _head(reports: Sequence[Report], command: str, day: date) -> str:
    versions = {name: version for r in reports for name, version in r.versions.items()}
    listed = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return (
        "# What `lengthen check` finds in public implementations\n\n"
        f"Generated on {day.isoformat()} by `{command}`; do not edit. Versions: {listed}.\n\n"
        "Models are tiny, random and in float32 on a CPU; they have the rules of their family's default configuration, with lengths "
        "shrunk in proportion. Encodings are the bare modules. A failed check states a property that does not hold for the call "
        "that is described, and nothing about the quality of a library; some of these are documented limits. "
        "`lengthen check MODEL` and `lengthen check --module FILE:NAME` run the same checks on anything else. "
        "The scripts below each failure use no code of lengthen; each prints one number.\n"
    )


def _table(title: str, name: str, reports: Sequence[Report]) -> str:
    rows = ["| | passed | failed | does not apply | failed checks |", "|---|---:|---:|---:|---|"]
    for r in reports:
        counts = r.counts()
        failed = ", ".join(f"[{v.check}](#{_anchor(title, name, v.check)})" for v in r.failures)
        label = r.subject.removeprefix(name).strip()
        rows.append(f"| {label} | {counts.get('pass', 0)} | {len(r.failures)} | {counts.get('not applicable', 0)} | {failed} |")
    return f"### {name}\n\n" + "\n".join(rows) + "\n"


def _failures(reports: Iterable[Report]) -> Mapping[tuple[str, str], list[tuple[str, Verdict]]]:
    """(library, check) -> the subjects that failed it, with the verdicts."""
    found: dict[tuple[str, str], list[tuple[str, Verdict]]] = {}
    for r in reports:
        for v in r.failures:
            found.setdefault((library(r.subject), v.check), []).append((r.subject, v))
    return dict(sorted(found.items()))


def _anchor(title: str, name: str, check: str) -> str:
    """How a reader of Markdown names the section."""
    return _anchored(f"{title} {name} {check}")


def _anchored(heading: str) -> str:
    return heading.lower().replace(" ", "-")


def _section(
    title: str,
    name: str,
    check: str,
    failed: Sequence[tuple[str, Verdict]],
    scripts: Sequence[Script],
    shown: dict[Script, str],
) -> str:
    """A failure with its scripts; one that stands in an earlier section is named there. `shown` collects where each stands."""
    first, here = failed[0][1], f"{title} {name} {check}"
    lines = [f"## {here}\n", f"Asserted: {first.asserts} {first.meaning} Usual cause: {first.cause}\n"]
    lines += ["| | measured | allowed | where |", "|---|---:|---:|---|"]
    lines += [f"| {s.removeprefix(name).strip()} | {_measured(v)} | {_number(v.tolerance)} | {_cell(v)} |" for s, v in failed]
    lines += ["", *(_shown(s) for s in scripts if s not in shown)]
    lines += [f"{s.shows} The script stands under [{shown[s]}](#{_anchored(shown[s])}).\n" for s in scripts if s in shown]
    shown |= {s: here for s in scripts if s not in shown}
    return "\n".join(lines)


def _measured(verdict: Verdict) -> str:
    return "raised" if verdict.outcome == "error" else _number(verdict.error)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isfinite(value) else "not finite"


def _cell(verdict: Verdict) -> str:
    """What was seen, on one line and without what Markdown would read."""
    said = " ".join(verdict.reason.split()).replace("|", "\\|").replace("<", "&lt;")
    return said if len(said) <= 160 else said[:157] + "..."


def _shown(script: Script) -> str:
    right = f"at most {script.right:g}" if script.right else "0"
    return f"{script.shows} Right would be {right}.\n\n```python\n{script.text}\n```\n"


def _right(reports: Sequence[Report], scripts: Sequence[Script]) -> str:
    """The scripts that confirm what passed."""
    passed = {(r.subject, v.check) for r in reports for v in r.verdicts if v.outcome == "pass"}
    shown = [_shown(s) for s in scripts if all((s.subject, check) in passed for check in s.checks)]
    return "## Passed, and confirmed by a script\n\n" + "\n".join(shown) if shown else ""
