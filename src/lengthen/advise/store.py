"""What a folder of advice holds: about.json, which says what is compared, and records.jsonl, a line per trial."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lengthen.core import UsageError
from lengthen.evaluate import Record, append_records, read_records
from lengthen.evaluate.records import replace_file
from lengthen.models.store import read_json

from .candidates import Candidate, tuning
from .reading import Answer, Reading
from .trial import Facts, Trial

ABOUT, RECORDS = "about.json", "records.jsonl"


class Store:
    """A folder that trials are added to as they end; what is there is whole at every moment."""

    def __init__(self, folder: Path, about: Mapping[str, Any], resume: bool):
        """Claims the folder. Raises UsageError for one that exists without `resume`, or that compares something else."""
        require_usable(folder, resume)
        self.folder = folder
        wanted = json.loads(json.dumps(about))
        if (folder / ABOUT).exists():
            _require_same(folder, read_json(folder / ABOUT), wanted)
        else:
            replace_file(folder / ABOUT, (json.dumps(wanted, indent=1) + "\n").encode())

    def trials(self, digests: list[str]) -> list[Trial]:
        """The readings so far. Failures are not among them: they are tried again. Raises UsageError for other passages."""
        path = self.folder / RECORDS
        rows = read_records(path) if path.exists() else []
        for row in rows:
            number = row.extra["passage"]
            if number < len(digests) and row.extra["digest"] != digests[number]:
                raise UsageError(f"{path} holds readings of another passage {number}. Use the same data, or another --out.")
        return [_trial(row) for row in rows if row.extra["reading"] is not None and row.extra["passage"] < len(digests)]

    def add(self, trial: Trial, digest: str, target: int, trained: int, about: Mapping[str, Any]) -> None:
        """Appends one trial, atomically."""
        append_records(self.folder / RECORDS, [_record(trial, digest, target, trained, about)])


def require_usable(folder: Path, resume: bool) -> None:
    """Raises UsageError for a folder that holds advice, where it is not to go on, or something else."""
    if (folder / ABOUT).exists():
        if not resume:
            raise UsageError(f"{folder} already holds advice. Go on with --resume, or give another --out.")
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and holds something else. Give another --out.")


def _require_same(folder: Path, held: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    other = [f"{k} is {held.get(k)!r} there and {v!r} here" for k, v in wanted.items() if held.get(k) != v]
    if other:
        raise UsageError(f"{folder} holds other advice: {'; '.join(other)}. Use the same settings, or another --out.")


def _record(trial: Trial, digest: str, target: int, trained: int, about: Mapping[str, Any]) -> Record:
    reading = trial.reading
    return Record(
        run="advise",
        method=trial.candidate.spec,
        seed=None,
        train_length=trained,
        eval_length=target,
        protocol="by_position",
        control="none",
        task="language_modelling",
        metric="nats_per_token",
        value=None if reading is None else sum(reading.nats) / sum(reading.tokens),
        n=1,
        reason=trial.failure,
        extra={
            "passage": trial.passage,
            "digest": digest,
            "reading": None if reading is None else asdict(reading),
            "facts": None if trial.facts is None else asdict(trial.facts),
            "provenance": dict(about),
        },
    )


def _trial(row: Record) -> Trial:
    kept = row.extra["reading"]
    answers = tuple(Answer(**a) for a in kept["answers"])
    reading = Reading(**{**kept, "nats": tuple(kept["nats"]), "tokens": tuple(kept["tokens"]), "answers": answers})
    facts = Facts(**{**row.extra["facts"], "readers": tuple(row.extra["facts"]["readers"])})
    return Trial(Candidate(row.method, tuning(row.method)), row.extra["passage"], reading, facts)
