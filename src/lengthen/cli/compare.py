"""`lengthen compare`: train short, test long."""

import json
import sys
from pathlib import Path

import typer

from .arguments import Spread, lengths, names


def register(app: typer.Typer) -> None:
    app.command("compare", cls=Spread)(compare)


def compare(
    methods: list[str] = typer.Option(None, help="Methods or specs, e.g. rope alibi 'rope+window:tokens=64'."),
    train_length: int = typer.Option(128, help="Tokens per training sequence."),
    length: list[str] = typer.Option(
        ["1x,2x,4x,8x,16x"], "--lengths", help="Lengths to read at: tokens, or multiples of the training length."
    ),
    seeds: int = typer.Option(2, help="Training runs per method; seeds are 0, 1, ..."),
    data: str = typer.Option("demo", help="'demo', a shipped corpus, a file, a folder, or 'hf:NAME'; join with '+'."),
    tokenizer: str = typer.Option("bytes", help="'bytes', 'bpe:SIZE', or 'hf:NAME_OR_FOLDER'."),
    preset: str = typer.Option("tiny", help="Model size: tiny, mini, small, medium, base."),
    steps: int = typer.Option(None, help="Training steps per run.", show_default="the demo's"),
    batch: int = typer.Option(None, help="Sequences per step.", show_default="the demo's"),
    lr: float = typer.Option(None, help="Peak learning rate.", show_default="the demo's"),
    precision: str = typer.Option("fp32", help="fp32 or bf16 (autocast)."),
    protocols: list[str] = typer.Option(None, help="Evaluation protocols.", show_default="all"),
    documents: int = typer.Option(None, help="Held-out documents to read.", show_default="the demo's"),
    stride: int = typer.Option(None, help="Stride of the sliding window, tokens.", show_default="half a window"),
    cost: bool = typer.Option(True, help="Also measure ALiBi at L against sinusoidal at 2L."),
    jobs: int = typer.Option(None, help="Runs side by side.", show_default="one per CPU core, one on a GPU"),
    out: Path = typer.Option(Path("runs/compare"), help="Folder for runs, records and report."),
    resume: bool = typer.Option(False, help="Go on in a folder that exists."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Train methods on short sequences, read them at long ones, and see which hold.

    Examples:

      lengthen compare

      lengthen compare --methods rope alibi xpos --train-length 64 --lengths 1x,4x,8x --seeds 1 --steps 50 --out runs/quick

      lengthen compare --methods rope "rope+window" --data my_texts/ --tokenizer bpe:2048 --preset mini --json
    """
    from dataclasses import replace

    from lengthen.core.errors import require_count
    from lengthen.recipes.compare import DEMO, summary
    from lengthen.recipes.compare import compare as run
    from lengthen.report.tables import comparison_table

    require_count("compare", "seeds", seeds, "training runs per method")
    given = {
        "methods": tuple(names(methods)) if methods else None,
        "train_length": train_length,
        "lengths": lengths(length, train_length),
        "seeds": tuple(range(seeds)),
        "data": data,
        "tokenizer": tokenizer,
        "preset": preset,
        "steps": steps,
        "batch": batch,
        "lr": lr,
        "precision": precision,
        "protocols": tuple(names(protocols)) if protocols else None,
        "documents": documents,
        "stride": stride,
        "cost": cost,
    }
    config = replace(DEMO, **{k: v for k, v in given.items() if v is not None})
    try:
        result = run(config, out, resume=resume, jobs=jobs, show=not as_json)
    except KeyboardInterrupt:
        print(f"lengthen: Interrupted. What is done stays in {out}; go on with the same command and --resume.", file=sys.stderr)
        raise
    if as_json:
        print(json.dumps(summary(result), indent=2))
    else:
        from rich.console import Console

        console = Console()
        console.print(comparison_table(result))
        console.print(f"Report: {out / 'report.html'}")
    if len(result.failures()) == len(result.results):
        raise typer.Exit(1)
