"""rope_parameters under which transformers computes given frequencies: the first name whose own arithmetic gives them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from lengthen.core import Geometric, Refusal
from lengthen.methods.llama3 import Llama3
from lengthen.methods.ntk_by_parts import NTKByParts
from lengthen.methods.yarn import YaRN, mscale_of

from .static import Static

Parameters = dict[str, Any]
Reader = Callable[[Parameters], tuple[np.ndarray, float]]
"""From rope_parameters to what a reader makes of them: inverse frequencies [R/2], and the multiplier of queries and keys."""
EXACT = 4e-6
"""Largest relative difference of frequencies: transformers raises the base to its powers in float32."""
KEPT = ("rope_theta", "partial_rotary_factor")


def rope_parameters(static: Static, own: Mapping[str, Any], read: Reader) -> Parameters:
    """own: the checkpoint's rope_parameters for these layers. Raises Refusal where nothing gives the frequencies."""
    worst = None
    for candidate in candidates(static, own):
        inv_freq, mscale = read(candidate)
        if same(static, inv_freq, mscale):
            return candidate
        worst = candidate["rope_type"], deviation(static, inv_freq)
    raise Refusal(
        f"No rope_type of transformers gives these frequencies; {worst[0]!r} comes nearest, {worst[1]:.1e} away and {EXACT:.0e} is allowed."
    )


def same(static: Static, inv_freq: np.ndarray, mscale: float) -> bool:
    """Whether a reader makes of its parameters what the rule says."""
    return deviation(static, inv_freq) <= EXACT and abs(mscale / static.mscale - 1) <= EXACT


def deviation(static: Static, inv_freq: np.ndarray) -> float:
    """Largest relative difference of the frequencies; a pair at rest may turn by 1e-20 radians a token."""
    wanted = static.inv_freq
    if inv_freq.shape != wanted.shape:
        return float("inf")
    return float((np.abs(inv_freq - wanted) / np.maximum(wanted, 1e-14)).max())


def candidates(static: Static, own: Mapping[str, Any]) -> Iterator[Parameters]:
    """In the order of preference: as it is, a base alone, names that most readers know, and factors written down."""
    kept = {name: own[name] for name in KEPT if name in own}
    if not _follows_length(own):
        yield dict(own)
    yield from _geometric(static, kept)
    yield from _by_name(static, kept)
    yield from _at_rest(static, kept)
    yield written_down(static, kept)


def _follows_length(own: Mapping[str, Any]) -> bool:
    """Whether entries may say something else at another length; those without a name say nothing."""
    kind = own.get("rope_type", "dynamic")
    return kind == "dynamic" or (kind == "longrope" and list(own["short_factor"]) != list(own["long_factor"]))


def _geometric(static: Static, kept: Parameters) -> Iterator[Parameters]:
    """A base alone, or a base and one divisor for all; read from the first and the last frequency."""
    theta = static.inv_freq
    if theta[-1] == 0 or static.mscale != 1:
        return
    base, factor = kept["rope_theta"], float(1 / theta[0])
    if len(theta) > 1 and not np.isclose(theta[-1] * factor, Geometric(base).inv_freq(static.size)[-1], rtol=1e-9, atol=0):
        base = float((theta[0] / theta[-1]) ** (static.size / (static.size - 2)))
    if np.isclose(factor, 1, rtol=1e-9, atol=0):
        yield kept | {"rope_type": "default", "rope_theta": base}
    elif factor > 1:
        yield kept | {"rope_type": "linear", "rope_theta": base, "factor": factor}


def _by_name(static: Static, kept: Parameters) -> Iterator[Parameters]:
    rule = static.rule
    if isinstance(rule, Llama3):
        yield kept | {
            "rope_type": "llama3",
            "rope_theta": rule.base,
            "factor": float(rule.factor),
            "low_freq_factor": float(rule.low),
            "high_freq_factor": float(rule.high),
            "original_max_position_embeddings": rule.original,
        }
    parts = rule.parts if isinstance(rule, YaRN) else rule
    if isinstance(parts, NTKByParts) and parts.ramp == "deployed":
        yield kept | _yarn(parts, static.mscale)


def _yarn(parts: NTKByParts, mscale: float) -> Parameters:
    """Entries that are a reader's defaults are left out: a reader that does not know them cannot go wrong."""
    asked = {"beta_fast": (float(parts.fast), 32.0), "beta_slow": (float(parts.slow), 1.0), "truncate": (parts.truncate, True)}
    asked["attention_factor"] = mscale, mscale_of(parts.factor)
    needed = {"factor": float(parts.factor), "original_max_position_embeddings": parts.original, "rope_theta": parts.base}
    return {"rope_type": "yarn", **needed} | {name: value for name, (value, default) in asked.items() if value != default}


def _at_rest(static: Static, kept: Parameters) -> Iterator[Parameters]:
    """'proportional': geometric over the whole head, and the slowest pairs at rest."""
    turning = int((static.inv_freq > 0).sum())
    if turning < len(static.inv_freq) and static.size == static.head_size:
        yield kept | {"rope_type": "proportional", "partial_rotary_factor": turning / len(static.inv_freq)}


def written_down(static: Static, kept: Parameters) -> Parameters:
    """'longrope' with equal factors for short and long texts: frequency_i = theta^(-2i/R) / factor_i, whatever is chosen."""
    factors = static.divisors.tolist()
    return kept | {
        "rope_type": "longrope",
        "short_factor": factors,
        "long_factor": list(factors),
        "factor": static.tokens / static.original,
        "attention_factor": static.mscale,
        "original_max_position_embeddings": static.original,
    }
