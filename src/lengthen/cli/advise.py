"""`lengthen advise`: which method, and how much of it, suits a checkpoint and a text?"""

import json
import sys
import time
from pathlib import Path

import typer

from .arguments import Spread, names

DTYPES = ("auto", "float32", "bfloat16", "float16")


def register(app: typer.Typer) -> None:
    app.command("advise", cls=Spread)(advise)


def advise(
    model: str = typer.Argument(help="A hub name, a folder, a .gguf file, or 'smollm2'."),
    target: str = typer.Option(help="The length to reach: 16k, 16384, or 2x of the trained length."),
    data: str = typer.Option(
        "sotu", help="Long texts: a file, a folder, a shipped corpus, or 'hf:NAME'.", show_default="annual messages, 'sotu'"
    ),
    budget: str = typer.Option("38m", help="Time for everything, as in 20m or 1h30m; 'none' reads it all."),
    methods: list[str] = typer.Option(None, help="Specs to try, e.g. yarn ntk:factor=3.", show_default="about twenty"),
    documents: int = typer.Option(4, help="Passages of the target length, each read under every method."),
    original: str = typer.Option(None, help="The trained length, where the checkpoint says it wrongly or not at all: 8k."),
    out: Path = typer.Option(Path("runs/advise"), help="Folder for records and the advice."),
    resume: bool = typer.Option(False, help="Go on in a folder that exists."),
    dtype: str = typer.Option("auto", help="float32, bfloat16 or float16.", show_default="as saved"),
    device: str = typer.Option(None, help="Such as cpu or cuda.", show_default="cuda where there is one"),
    remote_code: bool = typer.Option(False, "--trust-remote-code", help="Run Python code that the checkpoint brings."),
    as_json: bool = typer.Option(False, "--json", help="Print the advice as JSON."),
    html: Path = typer.Option(None, help="Write an HTML page there."),
) -> None:
    """Try methods on your checkpoint and your text, and see which to take.

    One forward per method and passage gives losses by position, answers about needles, what a token costs and what the cache
    takes. At the budget it stops with what it has; --resume goes on.

    Examples:

      lengthen advise smollm2 --target 16k

      lengthen advise my_model/ --target 4x --data my_texts/ --methods yarn ntk:factor=6 self_extend --budget 20m --html advice.html
    """
    start = time.monotonic()
    given = {"data": data, "documents": documents, "methods": names(methods) if methods else None, "resume": resume}
    given["original"] = _tokens(original)
    given["budget"] = None if budget.lower() == "none" else budget
    try:
        found = _advised(model, target, out, dtype, device, remote_code, not as_json, given | {"started": start})
    except KeyboardInterrupt:
        print(f"lengthen: Interrupted. What is read stays in {out}; go on with the same command and --resume.", file=sys.stderr)
        raise
    _write(found, out, html)
    if as_json:
        print(json.dumps(found.summary(), indent=2))
    else:
        _show(found)
    if not found.rows:
        raise typer.Exit(1)


def _advised(model: str, target: str, out: Path, dtype: str, device: str | None, remote_code: bool, show: bool, given: dict):
    from lengthen.advise import advise as run
    from lengthen.advise.progress import bar
    from lengthen.advise.run import require_possible
    from lengthen.hf import load

    # What can be refused without the checkpoint is refused before it is loaded.
    require_possible(out, given["resume"], given["methods"], given["budget"], given["documents"])
    _require_types(dtype)
    loaded, tokenizer = load(model, dtype=dtype, trust_remote_code=remote_code)
    loaded = loaded.to(device if device is not None else _device())
    if not show:
        return run(loaded, tokenizer, target, out, name=model, **given)
    with bar() as tell:
        return run(loaded, tokenizer, target, out, name=model, progress=tell, **given)


def _require_types(dtype: str) -> None:
    from lengthen.core.errors import unknown

    if dtype not in DTYPES:
        raise unknown("type of weights", dtype, DTYPES)


def _tokens(original: str | None) -> int | None:
    from lengthen.advise.amounts import tokens_of

    return None if original is None else tokens_of(original, 1)


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _write(found, out: Path, html: Path | None) -> None:
    from lengthen.evaluate.records import replace_file

    replace_file(out / "advice.json", (json.dumps(found.summary(), indent=1) + "\n").encode())
    if html is not None:
        from lengthen.report.advice import write_advice_page

        write_advice_page(found, html)


def _show(found) -> None:
    from rich.console import Console

    from lengthen.report.advice import advice_tables

    console = Console()
    for table in advice_tables(found):
        console.print(table)
    for spec, why in found.failures.items():
        console.print(f"Could not be tried: {spec}: {why}", markup=False, highlight=False)
    for sentence in found.sentences():
        console.print(sentence, markup=False, highlight=False)
    if found.line() is not None:
        # Not wrapped: it is there to be copied.
        print(f"\n{found.line()}")
