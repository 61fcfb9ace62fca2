"""The protocol: stages, scheme, plan, cache, registry. Knows no method by name."""

from .branch import Branch
from .cache import Cache, LayerCache, order
from .errors import LengthenError, LengthError, Refusal, UnknownNameError, UsageError
from .frequency import Adaptive, FrequencyRule, Geometric
from .layout import Coordinates, Layout
from .patterns import Beyond, Causal, Everywhere, Pattern
from .plan import Plan, spread, visible
from .registry import Method, Shape, build, build_layers, get, method, methods, parse
from .scheme import Scheme, compose, keys_seen
from .stages import (
    DistanceTerm,
    Embedding,
    Needs,
    PositionMap,
    Rotation,
    ScoreTerm,
    Temperature,
    Tile,
    ValueTerm,
    Warp,
    WarpedTerm,
)

__all__ = [
    "Adaptive",
    "Beyond",
    "Branch",
    "Cache",
    "Causal",
    "Coordinates",
    "DistanceTerm",
    "Embedding",
    "Everywhere",
    "FrequencyRule",
    "Geometric",
    "LayerCache",
    "Layout",
    "LengthError",
    "LengthenError",
    "Method",
    "Needs",
    "Pattern",
    "Plan",
    "PositionMap",
    "Refusal",
    "Rotation",
    "Scheme",
    "ScoreTerm",
    "Shape",
    "Temperature",
    "Tile",
    "UnknownNameError",
    "UsageError",
    "ValueTerm",
    "Warp",
    "WarpedTerm",
    "build",
    "build_layers",
    "compose",
    "get",
    "keys_seen",
    "method",
    "methods",
    "order",
    "parse",
    "spread",
    "visible",
]
