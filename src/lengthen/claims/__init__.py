"""What the founding papers claim, tested in small on a comparison: one file per paper."""

from lengthen.evaluate import Comparison

from .alibi import alibi_claims
from .lex import lex_claims
from .survey import survey_claims
from .verdict import Verdict

__all__ = ["Verdict", "verdicts"]


def verdicts(comparison: Comparison) -> list[Verdict]:
    """Every claim that the comparison can speak to."""
    return [*alibi_claims(comparison), *lex_claims(comparison), *survey_claims(comparison)]
