"""Which method and factor suit one's own checkpoint and text: tried on both, ranked, with intervals."""

from .advice import Advice
from .candidates import Candidate, candidates
from .run import advise

__all__ = ["Advice", "Candidate", "advise", "candidates"]
