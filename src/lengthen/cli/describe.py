"""`lengthen describe`: one method, whole."""

import json

import typer


def register(app: typer.Typer) -> None:
    app.command("describe")(describe)


def describe(
    method: str = typer.Argument(help="A method or a spec, such as 'rope' or 'rope:base=1e6+window:tokens=64'."),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON object."),
) -> None:
    """Describe a method: what acts where, what it assumes, how it is cached, which backends serve it.

    Examples:

      lengthen describe alibi

      lengthen describe rope+window:tokens=64 --json
    """
    from lengthen.report.describe import describe_spec, description

    about = describe_spec(method)
    if as_json:
        print(json.dumps(about, indent=2))
    else:
        from rich.console import Console

        Console().print(description(about))
