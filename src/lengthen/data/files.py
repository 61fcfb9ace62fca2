"""Documents in local files: one text file, JSON Lines, or a folder of both. Only UTF-8 is text."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from lengthen.core.errors import UsageError

from .columns import text_column, title
from .documents import Corpus, Document, collect

SUFFIXES = frozenset(
    f".{ending}"
    for ending in (
        *(
            "txt",
            "text",
            "md",
            "rst",
            "tex",
            "jsonl",
            "py",
            "pyi",
            "c",
            "h",
            "cc",
            "cpp",
            "hpp",
            "java",
            "js",
            "ts",
            "go",
            "rs",
        ),
        *("rb", "sh", "sql", "jl", "r", "scala", "kt", "swift"),
    )
)
"""Files that a folder is searched for, any case. A file that is named itself may have any suffix."""


def read_path(path: Path, name: str | None = None) -> Corpus:
    """A file or folder as a corpus whose source is `name` (the path by default).

    Of a folder, hidden files are passed over, and unreadable ones too, but those stand in the provenance with the reason.
    """
    name = name if name is not None else str(path)
    if path.is_dir():
        return _read_folder(path, name)
    return collect(name, read_documents(path, path.name, name), path=path.name)


def read_documents(path: Path, name: str, source: str) -> list[Document]:
    """The documents of one file: each line's of a `.jsonl`, else the whole file."""
    text = read_text(path)
    if path.suffix.lower() == ".jsonl":
        return list(_read_lines(text, path, name, source))
    return [Document(name, text, source)]


def read_text(path: Path) -> str:
    """The text of a file, without a byte order mark; line ends stay as they are. Refuses empty, binary and non-UTF-8 files."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is a pipe or a device, which cannot be read again. Give a text file or a folder of them.")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"The file {path} cannot be read: {error.strerror}.") from error
    if not data.strip():
        raise UsageError(f"The file {path} is empty: {len(data)} bytes, none of them text.")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"The file {path} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start} ({error.reason}). "
            f"{'It holds NUL bytes, so it is binary or UTF-16.' if 0 in data else 'Convert it to UTF-8.'}"
        ) from error
    if 0 in data:
        raise UsageError(f"The file {path} is binary: a NUL byte at offset {data.index(0)}. Give a text file in UTF-8.")
    return text.removeprefix("\ufeff")


def _read_lines(text: str, path: Path, name: str, source: str) -> Iterator[Document]:
    """Trap: `splitlines` also cuts at U+2028 and its like, which JSON allows inside strings."""
    column = None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            row = _row(line, f"The file {path}, line {number}")
            column = column if column is not None else text_column(row, None, f"{path}")
            if not isinstance(row.get(column), str):
                raise UsageError(
                    f"The file {path}, line {number} has no text in its column {column!r}, the column of the lines above."
                )
            yield Document(f"{name}:{title(row, number)}", row[column], source)


def _row(line: str, where: str) -> dict:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise UsageError(f"{where} is not JSON: {error.msg} at column {error.colno}.") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets nested as deep
        raise UsageError(f"{where} is JSON that cannot be read: {str(error).split(';')[0]}.") from error
    if isinstance(row, str):
        return {"text": row}
    if not isinstance(row, dict):
        raise UsageError(f"{where} holds neither an object nor a string, but {type(row).__name__}.")
    return row


def _read_folder(folder: Path, source: str) -> Corpus:
    found, skipped = _text_files(folder)
    documents = []
    for name, path in sorted(found.items()):
        try:
            documents += read_documents(path, name, source)
        except UsageError as error:
            skipped[name] = str(error)
    if documents:
        return collect(source, documents, path=folder.name, skipped=skipped)
    if skipped:
        raise UsageError(
            f"None of the {len(skipped)} text files and folders in {folder} can be read. The first: {next(iter(skipped.values()))}"
        )
    raise UsageError(
        f"The folder {folder} holds no text files. Those with these suffixes are read: {', '.join(sorted(SUFFIXES))}. "
        f"A folder of parquet files is read as 'hf:{folder}'."
    )


def _text_files(folder: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """(files by name, reasons by name of the folders that cannot be listed). Links to folders are not followed: they may loop."""
    found, closed = {}, {}

    def note(error: OSError) -> None:
        closed[Path(error.filename).relative_to(folder).as_posix()] = (
            f"The folder {error.filename} cannot be read: {error.strerror}."
        )

    for place, folders, files in os.walk(folder, onerror=note):
        folders[:] = [f for f in folders if not f.startswith(".")]
        paths = [Path(place, f) for f in files if not f.startswith(".")]
        found |= {p.relative_to(folder).as_posix(): p for p in paths if p.suffix.lower() in SUFFIXES and p.is_file()}
    return found, closed
