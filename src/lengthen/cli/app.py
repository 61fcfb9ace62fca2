"""The command itself: verbs are imported at once, what they call only when they run."""

import sys

import typer

from . import advise, bench, check, compare, describe, doctor, extend, list_methods, tune

app = typer.Typer(
    help="Make Transformers work past their training length, and prove it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
for verb in (compare, check, advise, extend, tune, list_methods, describe, bench, doctor):
    verb.register(app)


def version(show: bool) -> None:
    """Prints the version and leaves."""
    if show:
        from lengthen import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def root(
    show: bool = typer.Option(False, "--version", help="Print the version and leave.", callback=version, is_eager=True),
) -> None:
    """Make Transformers work past their training length, and prove it."""


def main() -> None:
    """Runs the command; an error that lengthen raises on purpose, or the disk, is one sentence and exit status 2."""
    try:
        app()
    except Exception as error:
        # Imported late: the package behind it imports torch, and `--help` must not wait for that.
        from lengthen.core.errors import LengthenError

        if not isinstance(error, LengthenError | OSError):
            raise
        print(f"lengthen: {error}", file=sys.stderr)
        sys.exit(2)
