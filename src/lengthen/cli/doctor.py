"""`lengthen doctor`: what this installation can do."""

import json

import typer


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(as_json: bool = typer.Option(False, "--json", help="Print a JSON list of objects.")) -> None:
    """Say what this installation can do, what is missing, what that costs and how to get it. Changes nothing.

    The exit status is 0 unless attention itself does not work.

    Examples:

      lengthen doctor

      lengthen doctor --json
    """
    from dataclasses import asdict

    from lengthen.bench.installation import broken, examine, page

    findings = examine()
    if as_json:
        print(json.dumps([asdict(f) for f in findings], indent=2))
    else:
        from rich.console import Console

        Console().print(page(findings))
    if broken(findings):
        raise typer.Exit(1)
