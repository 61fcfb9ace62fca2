"""What all readers return: documents that know where they come from, and the record of how they were found."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from lengthen.core.errors import UsageError


@dataclass(frozen=True)
class Document:
    """One whole text: a speech, a play, a file, an article."""

    name: str
    """Unique within its source: a file name, a title."""
    text: str
    """Any text that UTF-8 can encode."""
    source: str
    """The corpus that it came from; splits are balanced over sources."""


@dataclass(frozen=True)
class Corpus:
    """Documents in an order that is the same on every machine."""

    name: str
    documents: tuple[Document, ...]
    provenance: dict
    """Origin, version and counts, fit for JSON."""

    @property
    def chars(self) -> int:
        """Characters of all documents."""
        return sum(len(d.text) for d in self.documents)

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources, in order of appearance."""
        return tuple(dict.fromkeys(d.source for d in self.documents))


def collect(name: str, documents: Iterable[Document], **origin) -> Corpus:
    """A corpus of the documents that are neither blank nor an exact copy of an earlier one.

    A copy could stand on both sides of a split, and the held-out loss would measure memory. Refuses text that UTF-8
    cannot encode (lone surrogates, as JSON escapes can produce) and a corpus in which nothing is left.
    """
    kept, seen, whole = [], set(), hashlib.sha256()
    dropped, size = 0, 0
    for document in documents:
        data = _encoded(document)
        digest = hashlib.sha256(data).digest()
        if digest in seen or not data.strip():
            dropped += 1
            continue
        seen.add(digest)
        whole.update(digest)
        kept.append(document)
        size += len(data)
    if not kept:
        raise UsageError(f"{name!r} holds no text: {dropped} documents, all of them blank. Give at least one with words in it.")
    counts = {"documents": len(kept), "bytes": size, "blank_or_copies": dropped, "sha256": whole.hexdigest()}
    return Corpus(name, tuple(kept), {"name": name, **origin, **counts})


def join(name: str, parts: Iterable[Corpus]) -> Corpus:
    """The documents of several corpora, one after the other."""
    parts = list(parts)
    return collect(name, (d for p in parts for d in p.documents), parts=[p.provenance for p in parts])


def _encoded(document: Document) -> bytes:
    try:
        return document.text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"Document {document.name!r} of {document.source!r} has a lone surrogate at character {error.start}, which UTF-8 "
            "cannot encode. Repair the text (in JSON, an escape such as \\ud800 needs its second half)."
        ) from error
