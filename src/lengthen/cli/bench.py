"""`lengthen bench attention` and `lengthen bench model`: speed, memory and error beside named peers."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from .arguments import Spread, names

bench = typer.Typer(help="Measure speed, memory and error beside named peers.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(bench, name="bench")


@bench.command("attention", cls=Spread)
def attention(
    methods: list[str] = typer.Option(["nope", "alibi", "t5", "rope"], help="Encodings or specs."),
    length: list[str] = typer.Option(["1024,4096"], "--lengths", help="Tokens."),
    dtypes: list[str] = typer.Option(["float32"], help="float32, bfloat16, float16, float64."),
    backend: list[str] = typer.Option(None, help="Backends by name.", show_default="the one that attention chooses"),
    passes: list[str] = typer.Option(
        ["forward,backward,learned,decode"], help="'backward': weights fixed; 'learned': gradient into the encoding's weights."
    ),
    batch: int = typer.Option(1, help="Rows."),
    heads: int = typer.Option(8, help="Query heads."),
    groups: int = typer.Option(None, help="Key/value heads.", show_default="as many as --heads"),
    head_size: int = typer.Option(64, help="Channels per head."),
    layers: int = typer.Option(1, help="Attentions that share one layout, and so their tables."),
    train_length: int = typer.Option(1024, help="What encodings are built for; sizes a window, for one."),
    threads: int = typer.Option(None, help="PyTorch's threads.", show_default="PyTorch's choice"),
    repeats: int = typer.Option(9, help="Most rounds per row."),
    budget: float = typer.Option(600.0, help="Seconds for all rows; each has three rounds whatever they take."),
    memory: bool = typer.Option(True, help="Also measure peak memory, in a process of its own."),
    clock: str = typer.Option("wall", help="'wall', or 'cpu' on a busy machine (with --threads 1)."),
    device: str = typer.Option("cpu", help="cpu or cuda."),
    report: Path = typer.Option(None, help="Also write a dated report, e.g. benchmarks/reports/alibi.md, and .jsonl."),
    as_json: bool = typer.Option(False, "--json", help="Print the rows as JSON."),
) -> None:
    """Attention under encodings beside PyTorch's causal attention without any, interleaved: time, memory, error.

    Examples:

      lengthen bench attention --methods alibi t5 --lengths 256,1024 --budget 20

      lengthen bench attention --methods rope+window:tokens=128 fire --lengths 512 --dtypes bfloat16 --passes forward --json
    """
    from lengthen.bench import AttentionBench, bench_attention
    from lengthen.bench.columns import ATTENTION

    asked = AttentionBench(
        methods=tuple(names(methods)),
        lengths=_lengths(length),
        dtypes=tuple(names(dtypes)),
        backends=tuple(names(backend)) if backend else (None,),
        passes=tuple(names(passes)),
        batch=batch,
        heads=heads,
        groups=groups,
        head_size=head_size,
        layers=layers,
        train_length=train_length,
        threads=threads,
        repeats=repeats,
        budget=budget,
        memory=memory,
        clock=clock,
        device=device,
    )
    _run(bench_attention, asked, ATTENTION, report, as_json)


@bench.command("model", cls=Spread)
def model(
    tasks: list[str] = typer.Option(["training,inference"], help="training, inference."),
    methods: list[str] = typer.Option(["nope", "alibi", "t5", "rope"], help="Encodings to train with."),
    size: str = typer.Option("10m", help="Of the model that is trained: 10m, or a preset of `lengthen compare`."),
    inference_size: str = typer.Option("smollm2", help="Of the model that reads: smollm2, or a preset."),
    length: int = typer.Option(1024, help="Tokens per training sequence, and of the prompt."),
    batch: int = typer.Option(1, help="Sequences per training step."),
    new_tokens: int = typer.Option(16, help="Tokens that a round of decoding adds."),
    dtypes: list[str] = typer.Option(["float32"], help="float32, bfloat16 (in training: autocast)."),
    rounds: int = typer.Option(7, help="Most rounds per comparison."),
    budget: float = typer.Option(600.0, help="Seconds for everything; each has three rounds whatever they take."),
    threads: int = typer.Option(None, help="PyTorch's threads.", show_default="PyTorch's choice"),
    clock: str = typer.Option("wall", help="'wall', or 'cpu' on a busy machine (with --threads 1)."),
    device: str = typer.Option("cpu", help="cpu or cuda."),
    report: Path = typer.Option(None, help="Also write a dated report, e.g. benchmarks/reports/model.md, and .jsonl."),
    as_json: bool = typer.Option(False, "--json", help="Print the rows as JSON."),
) -> None:
    """Whole models: training beside plain causal attention and x-transformers, inference beside transformers.

    Examples:

      lengthen bench model --tasks training --methods alibi --size tiny --length 128 --rounds 3

      lengthen bench model --tasks inference --inference-size mini --length 256 --new-tokens 8 --json
    """
    from lengthen.bench import ModelBench, bench_model
    from lengthen.bench.columns import MODEL

    asked = ModelBench(
        tasks=tuple(names(tasks)),
        methods=tuple(names(methods)),
        size=size,
        inference_size=inference_size,
        length=length,
        batch=batch,
        new_tokens=new_tokens,
        dtypes=tuple(names(dtypes)),
        rounds=rounds,
        budget=budget,
        threads=threads,
        clock=clock,
        device=device,
    )
    _run(bench_model, asked, MODEL, report, as_json)


def _lengths(values: list[str]) -> tuple[int, ...]:
    from lengthen.core.errors import UsageError

    words = [part.strip() for v in values for part in v.split(",") if part.strip()]
    wrong = next((w for w in words if not w.isdecimal()), None)
    if wrong is not None:
        raise UsageError(f"The length {wrong!r} is not a number of tokens. Write it as in --lengths 1024,4096.")
    return tuple(map(int, words))


def _run(measure: Callable[..., Iterator], asked, page, report: Path | None, as_json: bool) -> None:
    """Measures, shows and writes; Ctrl-C keeps what is done and ends with the status 130."""
    from lengthen.bench.machine import facts
    from lengthen.bench.reports import Report

    asked.require_room()
    settings = {k: v for k, v in asdict(asked).items() if v is not None and k != "device"}
    file = Report.dated(report, page, facts(asked.device, **settings)) if report is not None else None
    rows: list[dict[str, Any]] = []
    interrupted = False
    try:
        with _progress(page.title, show=not as_json) as progress:
            for row in measure(asked, progress):
                rows.append(asdict(row))
                if file is not None:
                    file.write(rows)
    except KeyboardInterrupt:
        interrupted = True
    _show(rows, page, file, as_json)
    if interrupted:
        print(f"lengthen: Interrupted; {len(rows)} rows were measured.", file=sys.stderr)
        raise typer.Exit(130)


def _progress(title: str, show: bool):
    """A context that yields `progress(done, total, what)`: a bar, or nothing."""
    if not show:
        return nullcontext(lambda done, total, what: None)
    from lengthen.bench.progress import Bar

    return Bar(title)


def _show(rows: list[dict[str, Any]], page, file, as_json: bool) -> None:
    if as_json:
        from lengthen.recipes.files import plain

        print(json.dumps(plain(rows), indent=2))
        return
    from rich.console import Console

    from lengthen.bench.reports import terminal

    Console().print(*terminal(page, rows), sep="\n")
    if file is not None:
        print(f"Report: {file.path}")
