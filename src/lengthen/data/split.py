"""Training and held-out documents, divided whole."""

from hashlib import blake2b

from lengthen.core.errors import UsageError, require_count

from .documents import Corpus, Document, collect


def split(corpus: Corpus, held_out: float = 0.1, seed: int = 0, min_chars: int = 0) -> tuple[Corpus, Corpus]:
    """(training, held-out): a share `held_out` of each source's documents is held out, never a window of one.

    Each source is on both sides, and gives that share of its documents of at least `min_chars` characters as well as of
    its shorter ones: both sides are alike, and far reading has its documents. A source that is a single document is cut
    once, at a paragraph, and its end is held out.

    Which documents depends on the seed and their names only, so one document more moves no other.
    """
    require_count("split", "seed", seed, "seeds", least=0)
    require_count("split", "min_chars", min_chars, "characters", least=0)
    if not 0 < held_out < 1:
        raise UsageError(f"The 'held_out' of split must lie between 0 and 1, got {held_out}. 0.1 holds out a tenth.")
    longest = longest_holdable(corpus)
    if longest < max(min_chars, 1):
        raise UsageError(
            f"The corpus {corpus.name!r} is too small for the split: it has {len(corpus.documents)} documents with "
            f"{corpus.chars} characters, and can hold out one of at most {longest}; {max(min_chars, 1)} are needed. "
            "Give longer documents or ask for less."
        )
    train, held = [], []
    for source in corpus.sources:
        stay, leave = _divide([d for d in corpus.documents if d.source == source], held_out, seed, min_chars)
        train += stay
        held += leave
    how = {"held_out": held_out, "seed": seed, "min_chars": min_chars, "of": corpus.provenance["sha256"]}
    return collect(corpus.name, train, part="train", **how), collect(corpus.name, held, part="held", **how)


def longest_holdable(corpus: Corpus) -> int:
    """Characters of the longest document that a split can hold out: of a source with a single one, its second half."""
    longest = 0
    for source in corpus.sources:
        sizes = [len(d.text) for d in corpus.documents if d.source == source]
        longest = max(longest, max(sizes) if len(sizes) > 1 else sizes[0] // 2)
    return longest


def _divide(documents: list[Document], share: float, seed: int, min_chars: int) -> tuple[list[Document], list[Document]]:
    """(staying, held out) of one source, both in the order of the corpus."""
    if len(documents) == 1:
        return _cut(documents[0], share, min_chars)
    long = [d for d in documents if len(d.text) >= min_chars]
    short = [d for d in documents if len(d.text) < min_chars]
    held = _draw(long, max(1, round(share * len(long))), seed) | _draw(short, round(share * len(short)), seed)
    held = held or _draw(documents, 1, seed)
    if len(held) == len(documents):
        held -= _draw(short or long, 1, seed)
    return [d for d in documents if d.name not in held], [d for d in documents if d.name in held]


def _draw(documents: list[Document], count: int, seed: int) -> set[str]:
    """Names of `count` of the documents. A hash, not a generator, so that every machine draws the same for ever."""
    ranked = sorted(documents, key=lambda d: blake2b(f"{seed}\0{d.source}\0{d.name}".encode()).digest())
    return {d.name for d in ranked[:count]}


def _cut(document: Document, share: float, min_chars: int) -> tuple[list[Document], list[Document]]:
    """The beginning stays and the end, at most half, is held out; the border is a blank line where one is near."""
    size = len(document.text)
    at = size - min(max(round(share * size), min_chars, 1), size // 2)
    paragraph = document.text.rfind("\n\n", size // 2, at)
    if at - paragraph < size // 20 and paragraph > 0:
        at = paragraph + 2
    begin, end = (Document(f"{document.name} ({part})", t, document.source) for part, t in _parts(document.text, at))
    return [begin], [end]


def _parts(text: str, at: int) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("beginning", text[:at]), ("end", text[at:])
