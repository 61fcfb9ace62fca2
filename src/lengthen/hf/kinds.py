"""The kinds of rotary scaling that transformers 5.x names, each as one of our rules."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lengthen.core import Adaptive, FrequencyRule, Geometric
from lengthen.methods import longrope, yarn
from lengthen.methods.dynamic_ntk import DynamicNTK
from lengthen.methods.llama3 import Llama3
from lengthen.methods.ntk_by_parts import NTKByParts
from lengthen.methods.p_rope import Proportional
from lengthen.methods.pi import Interpolated

from .lengths import Lengths

SHARED = ("rope_type", "type", "rope_theta", "partial_rotary_factor")
"""Entries of any kind."""


@dataclass(frozen=True)
class Said:
    """One set of rope_parameters, with what the configuration says beside them."""

    given: Mapping[str, Any]
    base: float
    size: int
    """R, the channels that are turned."""
    share: float
    """partial_rotary_factor."""
    lengths: Lengths
    softmax_scale: bool
    """Whether mscale_all_dim also multiplies the softmax scale."""

    def number(self, name: str, default: float) -> float:
        """An entry, or its default where it is missing or None."""
        value = self.given.get(name)
        return value if value is not None else default


@dataclass(frozen=True)
class Kind:
    """A `rope_type`."""

    rule: Callable[[Said], FrequencyRule | Adaptive]
    entries: tuple[str, ...] = ()
    """Entries beside those of any kind."""
    required: tuple[str, ...] = ()
    stretches: bool = True
    """Whether factor and lengths mean anything."""
    has_original: bool = True
    """Whether it reads original_max_position_embeddings; else the trained length is max_position_embeddings."""
    whole_head: bool = False
    """Whether partial_rotary_factor leaves frequencies at 0 rather than channels out."""


def _default(said: Said) -> FrequencyRule:
    return Geometric(said.base)


def _linear(said: Said) -> FrequencyRule:
    return Interpolated(said.given["factor"], Geometric(said.base))


def _proportional(said: Said) -> FrequencyRule:
    rule = Proportional(said.share, said.base)
    factor = said.number("factor", 1.0)
    return rule if factor == 1.0 else Interpolated(factor, rule)


def _dynamic(said: Said) -> Adaptive:
    return DynamicNTK(said.lengths.original, said.given["factor"], said.base)


def _yarn(said: Said) -> FrequencyRule:
    factor, weights = said.lengths.factor, (said.given.get("mscale"), said.given.get("mscale_all_dim"))
    parts = NTKByParts(
        factor,
        said.lengths.original,
        said.base,
        said.number("beta_fast", 32.0),
        said.number("beta_slow", 1.0),
        truncate=said.number("truncate", True),
        ramp="deployed",
    )
    mscale = said.number("attention_factor", yarn.attention_factor_of(factor, *weights))
    return yarn.YaRN(parts, mscale, yarn.head_scale_of(factor, weights[1]) if said.softmax_scale else 1.0)


def _longrope(said: Said) -> Adaptive:
    lengths = said.lengths
    scale = said.number("attention_factor", longrope.attention_factor_of(lengths.factor, lengths.original))
    short, long = (tuple(map(float, said.given[name])) for name in ("short_factor", "long_factor"))
    return longrope.LongRoPE(short, long, lengths.original, said.base, scale)


def _llama3(said: Said) -> FrequencyRule:
    ends = said.given["low_freq_factor"], said.given["high_freq_factor"]
    return Llama3(said.given["factor"], said.lengths.original, said.base, *ends)


_LENGTHS = ("factor", "original_max_position_embeddings")
_SCALES = ("attention_factor", "mscale", "mscale_all_dim")
_LISTS = ("short_factor", "long_factor")
_ENDS = ("low_freq_factor", "high_freq_factor")

KINDS: dict[str, Kind] = {
    "default": Kind(_default, stretches=False),
    "linear": Kind(_linear, ("factor",), ("factor",), has_original=False),
    "dynamic": Kind(_dynamic, ("factor",), ("factor",), has_original=False),
    "yarn": Kind(_yarn, (*_LENGTHS, *_SCALES, "beta_fast", "beta_slow", "truncate")),
    "longrope": Kind(_longrope, (*_LENGTHS, *_LISTS, "attention_factor"), _LISTS),
    "llama3": Kind(_llama3, (*_LENGTHS, *_ENDS), ("factor", *_ENDS)),
    "proportional": Kind(_proportional, ("factor",), stretches=False, whole_head=True),
}
"""By `rope_type`."""
