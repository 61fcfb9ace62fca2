"""`lengthen check`: is a model, or an encoding, right about positions?"""

import json
import sys
from pathlib import Path

import typer

from .arguments import Spread, names


def register(app: typer.Typer) -> None:
    app.command("check", cls=Spread)(check)


def check(
    model: str = typer.Argument(
        None, help="A hub name, a folder, a .gguf file, or 'smollm2'; with --tiny also a model type such as llama."
    ),
    tiny: bool = typer.Option(False, "--tiny", help="Check a small random model of the same config: seconds, no weights."),
    module: str = typer.Option(
        None, metavar="FILE:NAME", help="Check an encoding, or a model, of a Python file. Runs the file."
    ),
    kind: str = typer.Option(None, help="What the module is, where it is not recognised: rotary, bias, embedding."),
    only: list[str] = typer.Option(None, help="These checks only."),
    skip: list[str] = typer.Option(None, help="Not these."),
    expect: list[str] = typer.Option(
        None, metavar="CHECK=REASON", help="A check known to fail, and why; it then does not count."
    ),
    seed: int = typer.Option(0, help="Of the texts, and of the tiny model's weights."),
    junit: Path = typer.Option(None, help="Write JUnit XML there."),
    html: Path = typer.Option(None, help="Write an HTML page there."),
    remote_code: bool = typer.Option(False, "--trust-remote-code", help="Run Python code that the checkpoint brings."),
    as_json: bool = typer.Option(False, "--json", help="Print the verdicts as JSON."),
) -> None:
    """Check what depends on positions: caches, padding, packing, batches, far positions, precision, settings.

    The model stays as it is, bit by bit. The exit status is 0 if every check passed or does not apply, 1 if one failed, 2 for
    a wrong request.

    Examples:

      lengthen check --tiny llama

      lengthen check HuggingFaceTB/SmolLM2-135M --json --junit check.xml

      lengthen check my_model/ --skip generate --expect "position_gaps=known, we never skip positions"

      lengthen check --module my_module.py:MyEncoding
    """
    from lengthen.conformance.model.formats import table

    _require_one(model, module, tiny)
    options = {"only": names(only or []), "skip": names(skip or []), "expected": _expected(expect or [])}
    options |= {"seed": seed}
    report = (
        _checked_module(module, kind, options) if module else _checked_model(model, tiny, remote_code, options, not as_json)
    )
    _write(report, junit, html)
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        from rich.console import Console

        Console().print(table(report))
    if report.failures:
        raise typer.Exit(1)


def _require_one(model: str | None, module: str | None, tiny: bool) -> None:
    from lengthen.core.errors import UsageError

    if (model is None) == (module is None):
        raise UsageError("Name one thing to check: a model, as in 'lengthen check --tiny llama', or --module FILE:NAME.")
    if module is not None and tiny:
        raise UsageError("--tiny shrinks the config of a model of transformers; a module of a file has none. Leave it out.")


def _expected(given: list[str]) -> dict[str, str]:
    """`["prefix=dynamic NTK"]` -> {"prefix": "dynamic NTK"}."""
    from lengthen.core.errors import UsageError

    for text in given:
        if not all(part.strip() for part in text.partition("=")):
            raise UsageError(f"--expect takes CHECK=REASON, got {text!r}. Say why it fails, as in 'prefix=dynamic NTK'.")
    return {check.strip(): reason.strip() for check, _, reason in (text.partition("=") for text in given)}


def _checked_model(name: str, tiny: bool, remote_code: bool, options: dict, show: bool):
    import transformers  # noqa: F401 (so that it can be kept quiet)

    from lengthen.conformance.model.quiet import quiet
    from lengthen.conformance.model.source import checkpoint, config_to_shrink
    from lengthen.conformance.model.suite import CHECKS, check_model, chosen

    # Wrong names of checks are to be told before anything is loaded.
    chosen(CHECKS, options["only"], options["skip"], options["expected"])
    with quiet():
        if tiny:
            what, tokenizer = config_to_shrink(name, trust_remote_code=remote_code), None
        else:
            what, tokenizer = checkpoint(name, trust_remote_code=remote_code)
    label = f"{name} (tiny)" if tiny else name
    report = check_model(what, tokenizer=tokenizer, tiny=tiny, name=label, progress=_progress if show else None, **options)
    if show:
        print("\r\x1b[K", end="", file=sys.stderr)
    return report


def _progress(check: str, done: int, total: int) -> None:
    print(f"\r\x1b[K{done}/{total} {check}", end="", file=sys.stderr, flush=True)


def _checked_module(where: str, kind: str | None, options: dict):
    """An encoding of a file; or a model of it, where it is one of a known library or a Subject."""
    from lengthen.conformance.model.suite import check_model, is_model
    from lengthen.conformance.module import check_module, load_object

    found, name = load_object(where), where.rpartition(":")[2]
    if is_model(found):
        return check_model(found, name=name, **options)
    return check_module(found, kind=kind, name=name, **options)


def _write(report, junit: Path | None, html: Path | None) -> None:
    from lengthen.evaluate.records import replace_file

    if junit is not None:
        replace_file(junit, report.junit().encode())
    if html is not None:
        from lengthen.report.verdicts import write_verdict_page

        write_verdict_page([report], html, command=f"lengthen check {' '.join(sys.argv[2:])}")
