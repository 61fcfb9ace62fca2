"""`python -m lengthen.conformance [METHOD ...] [--json]`: a table of methods, their variants and the checks."""

import argparse
import json
import sys
from dataclasses import asdict
from math import isfinite

from rich import box
from rich.console import Console
from rich.table import Table

from lengthen.core import LengthenError

from .check import CheckResult
from .subject import cases
from .suite import choose_checks, run

MARKS = {"pass": "[green]✓[/]", "fail": "[bold red]✗[/]", "n/a": "[dim]·[/]"}


def main(arguments: list[str] | None = None) -> int:
    """0 where nothing failed, 1 where something did, 2 for a wrong request."""
    parser = argparse.ArgumentParser(
        prog="python -m lengthen.conformance", description="Checks methods, registered or composed."
    )
    parser.add_argument("methods", nargs="*", metavar="METHOD", help="such as rope or rope+window:tokens=8; all by default")
    parser.add_argument("--checks", nargs="+", metavar="CHECK", help="all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="a list of objects instead of the table")
    asked = parser.parse_args(arguments)
    try:
        subjects, checks = cases(asked.methods or None, asked.seed), choose_checks(asked.checks)
    except LengthenError as e:
        print(e, file=sys.stderr)
        return 2
    results = {}
    for subject in subjects:
        results[subject.name] = run(subject, checks)
        if not asked.json:
            print(f"\r\x1b[K{len(results)}/{len(subjects)} {subject.name}", end="", file=sys.stderr, flush=True)
    if not asked.json:
        print("\r\x1b[K", end="", file=sys.stderr)
    show = print_json if asked.json else print_table
    show(results)
    return int(any(r.status == "fail" for rs in results.values() for r in rs))


def print_json(results: dict[str, list[CheckResult]]) -> None:
    """One object per method and check; an infinite error is null."""
    rows = [{"method": name, "check": r.name, **asdict(r)} for name, rs in results.items() for r in rs]
    for row in rows:
        del row["name"]
        row["error"] = row["error"] if row["error"] is not None and isfinite(row["error"]) else None
    print(json.dumps(rows, indent=1))


def print_table(results: dict[str, list[CheckResult]]) -> None:
    """A row per method, a column per check (its name written downwards), then the failures in words."""
    console = Console()
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("method", vertical="bottom", overflow="fold", min_width=20)
    for r in next(iter(results.values())):
        table.add_column("\n".join(r.name.replace("_", " ")), justify="center", vertical="bottom")
    for name, rs in results.items():
        table.add_row(name, *(MARKS[r.status] for r in rs))
    console.print(table)
    for name, rs in results.items():
        for r in rs:
            if r.status == "fail":
                console.print(f"[bold red]{name}[/]: {r.name} measured {r.error:.3g}, allowed {r.tolerance:.3g}. {r.reason}")
    counts = {s: sum(r.status == s for rs in results.values() for r in rs) for s in MARKS}
    console.print(
        f"{len(results)} methods and variants: {counts['pass']} passed, {counts['fail']} failed, {counts['n/a']} do not apply."
    )


if __name__ == "__main__":
    sys.exit(main())
