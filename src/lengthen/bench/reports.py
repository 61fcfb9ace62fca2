"""Dated reports: Markdown for people, JSON lines for programs, with the machine under the numbers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from lengthen.core import UsageError
from lengthen.evaluate.records import replace_file
from lengthen.recipes.files import plain

from .columns import Column, Page

UNITS = {"ms": 1e3, "us": 1e6, "MiB": 2**-20}
"""Factors from seconds and bytes."""


@dataclass(frozen=True)
class Report:
    """A file that is rewritten, whole, with every row, so that an interruption loses at most the row in the making."""

    path: Path
    """The Markdown file; the rows are beside it, as .jsonl."""
    page: Page
    facts: Mapping[str, Any]

    @staticmethod
    def dated(asked: Path, page: Page, facts: Mapping[str, Any]) -> "Report":
        """`reports/alibi.md` -> a report at `reports/2026-12-01-alibi.md`; one of the same day is replaced.

        Raises UsageError where the name does not end in .md, and OSError where nothing can be written there.
        """
        if asked.suffix != ".md":
            raise UsageError(
                f"A report is a Markdown file, got {str(asked)!r}. Name it as in {asked.with_suffix('.md').name!r}."
            )
        asked.parent.mkdir(parents=True, exist_ok=True)
        made = Report(asked.with_name(f"{date.today()}-{asked.name}"), page, facts)
        made.write([])
        return made

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Both files, from all rows so far."""
        listed = "\n".join(f"- {fact}: {value}" for fact, value in self.facts.items() if value is not None)
        text = f"# {self.page.title}\n\n{self.page.note}\n\n{markdown(self.page.columns, rows)}\n\n{listed}\n"
        lines = [{"facts": plain(dict(self.facts))}, *(plain(dict(r)) for r in rows)]
        replace_file(self.path, text.encode())
        jsonl = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
        replace_file(self.path.with_suffix(".jsonl"), jsonl.encode())


def markdown(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> str:
    """A table; a row without numbers ends with its reason."""
    line = lambda cells: "| " + " | ".join(cells) + " |"
    head = [line([heading for heading, _, _ in columns]), "|" + "---|" * len(columns)]
    return "\n".join([*head, *(line(cells(columns, row)) for row in rows)])


def cells(columns: Sequence[Column], row: Mapping[str, Any]) -> list[str]:
    """A row as text; what is not there is empty, and the reason stands in the last cell."""
    found = [quartiles(row, key) if form == "quartiles" else shown(row.get(key), form) for _, key, form in columns]
    return [*found[:-1], row["reason"]] if row.get("reason") is not None else found


def quartiles(row: Mapping[str, Any], key: str) -> str:
    """What `key`_low and `key`_high hold."""
    low, high = row[f"{key}_low"], row[f"{key}_high"]
    return "" if low is None else f"{low:.2f} to {high:.2f}"


def shown(value: Any, form: str) -> str:
    """A cell."""
    if value is None:
        return ""
    if form in UNITS:
        return f"{value * UNITS[form]:.3g}"
    return format(value, form) if not isinstance(value, str) else value


def terminal(page: Page, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """What the terminal shows of them: a table of the rows with numbers, then the reasons of those without."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=page.title, caption=page.note, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading, key, form in page.short:
        wraps = key in ("method", "peer")
        table.add_column(heading, justify="left" if form == "" else "right", overflow="fold", no_wrap=not wraps)
    for row in (r for r in rows if r["reason"] is None):
        table.add_row(*map(escape, cells(page.short, row)))
    return [table, *dict.fromkeys(_without(row) for row in rows if row["reason"] is not None)]


def _without(row: Mapping[str, Any]) -> str:
    """A row without numbers, in words."""
    from rich.markup import escape

    named = (row.get(key) for key in ("method", "backend", "peer", "dtype", "length", "kind", "task"))
    return escape(f"{' '.join(str(n) for n in named if n is not None)}: {row['reason']}")
