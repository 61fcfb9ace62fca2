"""`lengthen list`: the registered methods."""

import json

import typer


def register(app: typer.Typer) -> None:
    app.command("list")(list_methods)


def list_methods(
    family: str = typer.Option(None, help="Only methods of this family."),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON list of objects."),
) -> None:
    """List the registered methods.

    Examples:

      lengthen list

      lengthen list --family "additive bias" --json
    """
    from lengthen.core.errors import unknown
    from lengthen.report.describe import facts, methods_table

    rows = facts()
    families = {r["family"] for r in rows}
    if family is not None and family not in families:
        raise unknown("family", family, families)
    rows = [r for r in rows if family in (None, r["family"])]
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        from rich.console import Console

        Console().print(methods_table(rows))
