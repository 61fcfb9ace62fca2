"""Train short, test long: the comparison behind `lengthen compare` and `make demo`."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from lengthen.claims import verdicts
from lengthen.core import LengthenError, UsageError
from lengthen.core.errors import require_count
from lengthen.evaluate import Comparison, read_records, write_records
from lengthen.evaluate.documents import check_lengths, select
from lengthen.evaluate.records import replace_file

from .config import DEMO, CompareConfig
from .cost import COST_PAIR, measure_cost
from .files import plain, read_json, write_json
from .pool import cores, run_all
from .run import RunSpec, load_data, perform

__all__ = ["DEMO", "compare", "open_comparison", "summary"]

CONFIG = "config.json"


def compare(
    config: CompareConfig, folder: str | Path, *, resume: bool = False, jobs: int | None = None, show: bool = True
) -> Comparison:
    """Trains every method under every seed, reads them at every length, writes records, table and report to `folder`.

    jobs: runs side by side, each in a process of its own; None: one per core, or one where there is a GPU.
    Raises UsageError before anything is touched: a folder that exists without `resume`, or that holds another comparison;
    data that are too small; lengths beyond every held-out document. A run that diverges is reported and the others go on;
    so do they where one crashes, which is raised as a LengthenError once the report is written.
    """
    folder = Path(folder)
    if jobs is not None:
        require_count("compare", "jobs", jobs, "runs side by side")
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise UsageError(
            f"compare was started in {os.environ['WORLD_SIZE']} processes, and it makes its runs side by side itself. Start it once "
            "(--jobs says how many at a time); `accelerate launch` serves scripts that call lengthen.train.train."
        )
    _check(config)
    try:
        _open(config, folder, resume)
    except OSError as error:
        raise UsageError(f"The folder {folder} cannot be used: {error.strerror}. Give another --out.") from error
    side_by_side = jobs if jobs is not None else (1 if torch.cuda.is_available() else cores())
    runs = [RunSpec(m, s, config.train_length, config.steps, config.batch) for s in config.seeds for m in config.methods]
    runs += measure_cost(config, folder, show) if set(COST_PAIR) <= set(config.methods) and config.cost else []
    ended = run_all(perform, [(r, config, folder) for r in runs], side_by_side, show)
    found = finish(folder)
    crashed = [f"{r.name}: {type(e).__name__}: {e}" for r, e in zip(runs, ended, strict=True) if isinstance(e, Exception)]
    if crashed:
        raise LengthenError(
            f"{len(crashed)} of {len(runs)} runs crashed ({'; '.join(crashed)}). {folder / 'report.html'} holds the others; "
            "--resume tries the crashed ones again."
        )
    return found


def finish(folder: Path) -> Comparison:
    """Gathers the runs of a folder; writes records.jsonl, table.md, summary.json and report.html."""
    from lengthen.report.page import write_page
    from lengthen.report.tables import comparison_markdown

    found = open_comparison(folder)
    rows = [r for path in sorted(folder.glob("*/records.jsonl")) for r in read_records(path)]
    write_records(folder / "records.jsonl", rows)
    write_json(folder / "summary.json", summary(found))
    replace_file(folder / "table.md", comparison_markdown(found).encode())
    write_page(found, folder)
    return found


def summary(found: Comparison) -> dict[str, Any]:
    """Every number and every verdict, fit for JSON."""
    return plain({**found.summary(), "claims": [asdict(v) for v in verdicts(found)]})


def open_comparison(folder: str | Path) -> Comparison:
    """A comparison that was run before."""
    folder = Path(folder)
    about = read_json(folder / CONFIG)
    lengths = tuple(sorted({*about["lengths"], about["train_length"]}))
    results = [
        {"name": path.parent.name, **read_json(path, "spec", "training")} for path in sorted(folder.glob("*/result.json"))
    ]
    cost = read_json(folder / "cost.json") if (folder / "cost.json").exists() else None
    return Comparison(tuple(about["methods"]), about["train_length"], lengths, about, results, cost)


def _check(config: CompareConfig) -> None:
    """Everything that can be refused before a folder is made."""
    check_lengths(config.lengths)
    data = load_data(config)
    select([d.ids for d in data.held], max(*config.lengths, config.train_length), config.documents)
    config.model(data.tokenizer.vocab)


def _open(config: CompareConfig, folder: Path, resume: bool) -> None:
    """Claims the folder for this comparison."""
    wanted = json.loads(json.dumps(asdict(config)))
    if (folder / CONFIG).exists():
        if not resume:
            raise UsageError(f"{folder} already holds a comparison. Go on with --resume, or give another --out.")
        held = read_json(folder / CONFIG)
        other = [f"{k} is {held.get(k)!r} there and {v!r} here" for k, v in wanted.items() if held.get(k) != v]
        if other:
            raise UsageError(f"{folder} holds another comparison: {'; '.join(other)}. Use the same settings, or another --out.")
    elif folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} exists and holds something else. Give another --out.")
    else:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / CONFIG, wanted)
