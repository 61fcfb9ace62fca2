"""Data sets of the Hugging Face hub, or local folders in the same format, read by the `datasets` library."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice

from lengthen.core.errors import UsageError, require_count

from .columns import text_column, title
from .documents import Corpus, Document, collect

SHORT_NAMES = {
    "wikitext": ("Salesforce/wikitext", "wikitext-2-raw-v1"),
    "pg19": ("emozilla/pg19", None),
    "arxiv": ("ccdv/arxiv-summarization", "document"),
}
"""Short name -> repository and configuration. The original pg19 is a loading script, which `datasets` no longer runs."""

HEADING = re.compile(r"\s*= (?!=)(.+?)(?<!=) = \s*")
"""The first line of a wikitext article, ' = Title = '; those of its sections have more signs, ' = = Section = = '."""


@dataclass(frozen=True)
class HubName:
    """NAME[:CONFIG][:SPLIT][:COLUMN], where SPLIT may end in [:N] to stream N documents instead of downloading all."""

    path: str
    """Repository or local folder."""
    config: str | None
    split: str
    column: str | None
    limit: int | None
    """Documents to read; None: all."""

    @staticmethod
    def parse(text: str) -> "HubName":
        """`text` is what follows 'hf:'. Empty parts take their defaults."""
        parts = re.split(r":(?![^\[]*\])", text)
        if not parts[0] or len(parts) > 4:
            raise UsageError(f"'hf:{text}' is not of the form hf:NAME[:CONFIG][:SPLIT][:COLUMN]; it has {len(parts)} parts.")
        path, config, split, column = (*(p or None for p in parts), None, None, None)[:4]
        path, default = SHORT_NAMES.get(path, (path, None))
        limited = re.fullmatch(r"(\w+)\[:(\d+)\]", split or "train")
        if limited is None and not re.fullmatch(r"[\w.]+", split or "train"):
            raise UsageError(f"The split of 'hf:{text}' must be a name, or a name and a number of documents as in train[:50].")
        limit = int(limited[2]) if limited else None
        if limit is not None:
            require_count(f"'hf:{text}'", "split", limit, "documents")
        return HubName(path, config or default, limited[1] if limited else split or "train", column, limit)


def read_hub(text: str) -> Corpus:
    """The data set that follows 'hf:'. Rows of wikitext are joined to whole articles; elsewhere a row is a document."""
    name = HubName.parse(text)
    source = f"hf:{text}"
    rows = _rows(name, source)
    first = next(rows, None)
    if first is None:
        raise UsageError(f"The split {name.split!r} of {source!r} has no rows.")
    column = text_column(first, name.column, repr(source))
    documents = _documents(chain([first], rows), column, source)
    origin = {"repository": name.path, "config": name.config, "split": name.split, "column": column, "limit": name.limit}
    return collect(source, islice(documents, name.limit), **origin)


def _rows(name: HubName, source: str) -> Iterator[Mapping]:
    """Trap: with streaming, rows are fetched while iterating, so that failures come then as well."""
    from datasets import load_dataset

    try:
        yield from load_dataset(name.path, name.config, split=name.split, streaming=name.limit is not None)
    except Exception as error:  # the library and its transports share no base class
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise UsageError(
            f"The data set {source!r} could not be loaded: {reason.rstrip('.')}. Without a network, give a local folder of its parquet or "
            "JSON Lines files as hf:FOLDER, or one of the shipped sets, such as 'demo'."
        ) from error


def _documents(rows: Iterable[Mapping], column: str, source: str) -> Iterator[Document]:
    named = ((title(row, n), _text(row[column], n, column, source)) for n, row in enumerate(rows))
    head = []
    for name, text in named:
        head.append((name, text))
        if text.strip():
            break
    named = chain(head, named)
    if HEADING.fullmatch(head[-1][1]):
        whole = articles(text for _, text in named)
        named = ((f"{n} {name}", text) for n, (name, text) in enumerate(whole))
    yield from (Document(name, text, source) for name, text in named if text.strip())


def _text(value: object, number: int, column: str, source: str) -> str:
    if value is not None and not isinstance(value, str):
        raise UsageError(f"Row {number} of {source!r} has no text in its column {column!r}, but {type(value).__name__}.")
    return value if value is not None else ""


def articles(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Titles with whole articles from the lines of wikitext. A title follows a blank line, which keeps formulas out."""
    name, body, after_blank = "", [], True
    for line in lines:
        heading = HEADING.fullmatch(line) if after_blank else None
        if heading:
            if name:
                yield name, "".join(body)
            name, body = heading[1], []
        body.append(line if line.endswith("\n") else line + "\n")
        after_blank = not line.strip()
    if name:
        yield name, "".join(body)
