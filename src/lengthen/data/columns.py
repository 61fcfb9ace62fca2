"""Which column of a table of documents holds the text, and which the name."""

from collections.abc import Mapping

from lengthen.core.errors import UsageError, unknown

TEXT = ("text", "article", "document", "content", "body", "full_text", "book", "code", "report")
"""Usual names of the column of text, the likeliest first: wikitext and pg19 have 'text', arXiv summaries 'article'."""
TITLE = ("title", "short_book_title", "name", "path", "id", "url")
"""Usual names of the column that names a document."""


def text_column(row: Mapping, wanted: str | None, owner: str) -> str:
    """The wanted column, else a usual one, else the only one that holds strings."""
    if wanted is not None:
        if wanted not in row:
            raise unknown(f"column of {owner}", wanted, row)
        return wanted
    strings = [name for name, value in row.items() if isinstance(value, str)]
    usual = [name for name in TEXT if name in strings] or (strings if len(strings) == 1 else [])
    if not usual:
        raise UsageError(
            f"No column of {owner} is clearly its text; it has {', '.join(map(repr, row)) or 'no columns'}. Name the column."
        )
    return usual[0]


def title(row: Mapping, number: int) -> str:
    """A name for row `number`, unique because it begins with the number."""
    found = next((row[c] for c in TITLE if isinstance(row.get(c), str) and row[c].strip()), None)
    return f"{number}" if found is None else f"{number} {found.strip()}"
