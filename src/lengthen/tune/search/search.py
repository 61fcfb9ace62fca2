"""search(): frequencies found on the user's own model and text."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthen.core import Geometric, UsageError
from lengthen.core.errors import unknown
from lengthen.methods.longrope import attention_factor_of
from lengthen.models import Decoder

from .evolution import EvolutionConfig, Found, Progress, evolve
from .longrope import LongRoPESpace
from .longrope2 import LongRoPE2Space
from .rotation import rotation_of, spec_of
from .rows import Row
from .score import DecoderScore, HuggingFaceScore
from .space import Space

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from lengthen.core import Rotation
    from lengthen.methods.rope import Rotary

SPACES = {"longrope": LongRoPESpace, "longrope2": LongRoPE2Space}


@dataclass(frozen=True)
class Factors:
    """What a search found, ready for use."""

    found: Found
    rotation: "Rotation"
    """In place of the trained one: `extend(model, Scheme(rotation=...))`."""
    spec: str | None
    """The same as a method spec for `extend` and export; None where tokens at the start are left alone, or the trained
    frequencies are scaled already."""


def search(
    model: "Decoder | PreTrainedModel",
    rows: Sequence[Row],
    *,
    trained: int,
    target: int,
    base: float,
    folder: str | Path,
    kind: str = "longrope",
    starts: tuple[int, ...] = (0,),
    config: EvolutionConfig | None = None,
    resume: bool = False,
    most_scores: int | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Factors:
    """Searches factors for a model, from rows of `text_rows` (LongRoPE) or `needle_rows` (LongRoPE2); see `evolve`.

    base: of the trained frequencies, radians per token. starts: choices of n-hat, for 'longrope' only. Queries and keys are
    multiplied by sqrt(1 + ln s / ln L), as transformers does for 'longrope'.
    """
    if kind not in SPACES:
        raise unknown("search", kind, SPACES)
    if target < trained:
        raise UsageError(f"The target of {target} tokens is below the {trained} trained ones. Give at least {trained}.")
    scale = target / trained
    mscale = attention_factor_of(scale, trained)
    score = DecoderScore(model, rows, mscale) if isinstance(model, Decoder) else HuggingFaceScore(model, rows, target, mscale)
    try:
        space = _space(kind, score.own.size, scale, trained, base, starts)
        how: dict[str, Any] = {"resume": resume, "most_scores": most_scores, "seconds": seconds, "progress": progress}
        config = config if config is not None else EvolutionConfig()
        found = evolve(space, score, config, folder, facts=score.facts(), **how)
    finally:
        score.release()
    spec = spec_of(found.best, scale, mscale) if _is_geometric(score.own, base) else None
    return Factors(found, rotation_of(found.best, score.own, mscale), spec)


def _is_geometric(own: "Rotary", base: float) -> bool:
    """Whether the trained frequencies are those that a spec starts from."""
    plain = Geometric(base).inv_freq(own.size)
    return own.rule.mscale == 1.0 and bool(np.allclose(own.rule.inv_freq(own.size), plain, rtol=1e-5, atol=0))


def _space(kind: str, dim: int, scale: float, trained: int, base: float, starts: tuple[int, ...]) -> Space:
    if kind == "longrope":
        return LongRoPESpace(dim, scale, trained, base, starts)
    if starts != (0,):
        raise UsageError(f"LongRoPE2 rescales every token, so its 'starts' is (0,), got {starts}. Use 'longrope' for n-hat.")
    return LongRoPE2Space(dim, scale, trained, base)
