"""Dated reports: Markdown with the facts of the machine under the numbers."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

REPORTS = Path(__file__).parent / "reports"


def write_report(name: str, heading: str, table: str, facts: Mapping[str, Any]) -> None:
    """Writes reports/<today>-<name>.md; a report of the same day is replaced."""
    listed = "\n".join(f"- {fact}: {value}" for fact, value in facts.items() if value is not None)
    (REPORTS / f"{date.today()}-{name}.md").write_text(f"# {heading}\n\n{table}\n\n{listed}\n")
