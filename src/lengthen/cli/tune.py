"""`lengthen tune`: train a checkpoint on for length, or search its frequencies."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from .tuning import TuneOptions


def register(app: typer.Typer) -> None:
    app.command("tune")(tune)


def tune(
    model: str = typer.Argument(help="A hub name, a folder, a .gguf file, 'smollm2', or the folder of a run of `compare`."),
    target: str = typer.Option(help="Tokens to reach: 32k, 32768 or 4x."),
    method: str = typer.Option(None, help="A spec for the new length, such as yarn.", show_default="the model's own"),
    way: str = typer.Option("pose", help="pose, full, s2, randomised or drope."),
    search: str = typer.Option(None, help="Search frequencies instead of training: longrope or longrope2."),
    steps: int = typer.Option(1000, help="Training steps."),
    data: str = typer.Option("demo", help="'demo', a shipped corpus, a file, a folder, or 'hf:NAME'; join with '+'."),
    lr: float = typer.Option(2e-5, help="Peak learning rate."),
    batch: int = typer.Option(8, help="Rows per step."),
    accumulate: int = typer.Option(1, help="Read the rows of a step in so many pieces, to save memory."),
    precision: str = typer.Option("fp32", help="fp32 or bf16 (autocast)."),
    lora: int = typer.Option(None, metavar="R", help="LoRA of rank R, with embeddings and norms.", show_default="all weights"),
    mix: float = typer.Option(0.0, help="Share of the steps at the trained length, to keep what the model can."),
    chunks: int = typer.Option(2, help="Of PoSE: pieces of a row."),
    group: int = typer.Option(None, help="Of S2: tokens that attend to each other.", show_default="a quarter of the target"),
    drop_at: float = typer.Option(0.0, help="Of DroPE: the share of the steps after which positions are dropped."),
    rows: int = typer.Option(4, help="Of a search: texts that a candidate is scored on."),
    scores: int = typer.Option(None, help="Of a search: stop after so many scores."),
    budget: str = typer.Option(None, help="Of a search: stop after this time, such as 20m."),
    seed: int = typer.Option(0, help="Of data order, positions and the search."),
    out: Path = typer.Option(Path("runs/tune"), help="Folder for checkpoints and the tuned model."),
    resume: bool = typer.Option(False, help="Go on in a folder that exists, to the same numbers."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Train a checkpoint on for length with rows that may be as short as it was trained on, or search its frequencies.

    Examples:

      lengthen tune smollm2 --target 32k --method yarn --way pose --lora 8 --steps 200 --batch 1 --data my_books/

      lengthen tune runs/compare/rope-L128-s0 --target 4x --method yarn:fast=8 --steps 300 --lr 1e-3 --mix 0.25

      lengthen tune smollm2 --target 16k --search longrope2 --budget 1h --json
    """
    from .tuning import TuneOptions, tuned_checkpoint, tuned_decoder

    _require_known(way, search)
    settings = TuneOptions(
        way, steps, data, out, lr, batch, accumulate, precision, lora, mix, chunks, group, drop_at, seed, resume
    )
    if search is not None:
        about = _searched(model, target, search, rows, scores, budget, settings)
    elif (Path(model) / "model" / "config.json").is_file():
        about = tuned_decoder(Path(model), method, target, settings)
    else:
        about = tuned_checkpoint(model, method, target, settings)
    print(json.dumps(about, indent=2) if as_json else about["summary"])
    if about["status"] == "failed":
        raise typer.Exit(1)


def _require_known(way: str, search: str | None) -> None:
    """Refuses before a model is loaded."""
    from lengthen.core.errors import unknown
    from lengthen.tune.named import WAYS
    from lengthen.tune.search.search import SPACES

    if way not in WAYS:
        raise unknown("way of tuning", way, WAYS)
    if search is not None and search not in SPACES:
        raise unknown("search", search, SPACES)


def _searched(
    name: str, target: str, kind: str, rows: int, scores: int | None, budget: str | None, options: "TuneOptions"
) -> dict[str, Any]:
    """A search on a checkpoint of transformers."""
    from lengthen.advise.amounts import seconds_of, tokens_of
    from lengthen.hf.request import parameters, trained_length
    from lengthen.tune.search import EvolutionConfig, needle_rows, search, text_rows

    from .tuning import documents_of, encoder_of, loaded

    seconds = seconds_of(budget) if budget is not None else None
    model, tokenizer = loaded(name, options.data)
    trained = trained_length(model.config)
    length = tokens_of(target, trained)
    documents = documents_of(options.data, tokenizer)
    made = (
        text_rows(documents, length, rows)
        if kind == "longrope"
        else needle_rows(documents, length, rows, encoder_of(tokenizer), seed=options.seed)
    )
    tell = lambda done, most, best: print(f"{done} of at most {most} scores, best perplexity {best:.4g}", file=sys.stderr)
    found = search(
        model,
        made,
        trained=trained,
        target=length,
        base=parameters(model.config, None)["rope_theta"],
        folder=options.out,
        kind=kind,
        config=EvolutionConfig(seed=options.seed),
        resume=options.resume,
        most_scores=scores,
        seconds=seconds,
        progress=tell,
    )
    best = found.found
    return {
        "status": best.status,
        "perplexity": best.score,
        "perplexity_of_known_rules": best.first,
        "scores": best.scores,
        "reason": best.reason,
        "spec": found.spec,
        "summary": f"{best.status}: perplexity {best.score:.4g} after {best.scores} scores, {best.first:.4g} with the best known rule.\n{found.spec}",
    }
