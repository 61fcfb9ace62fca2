"""Three ways to run a scheme in a transformers model, and which of them a scheme can take.

rotary: only the rotary module changes; attention, masks and cache stay transformers' own, at their own speed.
turned: the rotary module turns queries and keys at the keys' positions, so the cache holds turned keys; our attention does
the rest: patterns, terms, temperatures, and what is left to turn in each branch.
raw: the rotary module turns nothing, the cache holds raw keys, and our attention turns them at every step: always right,
and at every decoded token as slow as turning the whole cache.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lengthen.core import Branch, Causal, Needs, Rotation, Scheme, UsageError
from lengthen.core.branch import PositionChange, unchanged
from lengthen.core.errors import unknown

from .kept import kept_by

ROUTES = ("rotary", "turned", "raw")
"""Cheapest first."""


@dataclass(frozen=True)
class Lowered:
    """A scheme, divided between the rotary module and our attention."""

    route: str
    rotation: Rotation | None
    """Of the rotary module; None: it turns nothing."""
    change: PositionChange
    """What the rotary module does to positions first."""
    scheme: Scheme
    """What is left to our attention, on `route` 'turned' and 'raw'."""
    keys_turned: bool


def lower(scheme: Scheme, channels: int, route: str | None = None) -> Lowered:
    """Takes the cheapest route, or the named one. Raises UsageError where a scheme cannot take that."""
    if route is not None and route not in ROUTES:
        raise unknown("route", route, ROUTES)
    blocked = {name: why for name in ROUTES if (why := _blocked(name, scheme, channels)) is not None}
    chosen = route if route is not None else next(name for name in ROUTES if name not in blocked)
    if chosen in blocked:
        raise UsageError(f"This scheme cannot take the route {chosen!r}: {blocked[chosen]}. Leave the route out.")
    if chosen == "raw":
        return Lowered(chosen, None, unchanged, scheme, False)
    return replace(_turned(scheme), route=chosen)


def _blocked(route: str, scheme: Scheme, channels: int) -> str | None:
    """Why the scheme cannot take that route."""
    rotation = scheme.rotation
    if route == "raw":
        return None
    content = any(term.needs >= Needs.CONTENT for term in scheme.terms) or len(scheme.value_terms) > 0
    if rotation is None or not rotation.cacheable or content:
        return "its keys cannot be cached turned"
    if rotation.size != channels or not _turns_alike(rotation):
        return f"the model turns {channels} channels of queries and keys alike, and it does not"
    if scheme.positions is not None:
        return "it maps positions"
    extra = [*scheme.terms, *scheme.value_terms]
    if extra and scheme.branches:
        return "its terms read distances that differ by branch"
    plain = scheme.pattern == Causal() and scheme.temperature is None
    if route == "rotary" and not (plain and not extra and not scheme.branches):
        return "it is more than a rotation"
    return None


def _turns_alike(rotation: Rotation) -> bool:
    pos = torch.tensor([[0.0, 1.0, 1000.0]], dtype=torch.float64)
    zero = torch.zeros(1, 1, dtype=torch.float64)
    return torch.equal(rotation.factors(pos, zero, True), rotation.factors(pos, zero, False))


def _turned(scheme: Scheme) -> Lowered:
    """The cache holds keys at the positions of the branch that shows most; others turn theirs on from there."""
    rotation, cached = scheme.rotation, max(scheme.branches, key=_shows).keys if scheme.branches else unchanged
    alike = all(b.keys == cached for b in scheme.branches)
    keys = lambda b: b.keys if alike else Left(b.keys, cached)
    rest = [Branch(b.region, Left(b.queries, cached), keys(b), b.relative) for b in scheme.branches]
    left = Scheme(
        rotation=Unscaled(rotation) if rest else None,
        terms=tuple(scheme.terms),
        value_terms=tuple(scheme.value_terms),
        pattern=scheme.pattern,
        branches=rest,
        temperature=scheme.temperature,
    ).eval()
    return Lowered("turned", rotation, cached, left, bool(rest) and alike)


def _shows(branch: Branch) -> float:
    """Most keys that a query sees in a branch."""
    most = kept_by(branch.region)
    return float("inf") if most is None else most.tokens


@dataclass(frozen=True)
class Left:
    """Where a token stands in a branch, less where it has been turned already."""

    wanted: PositionChange
    done: PositionChange

    @property
    def zero(self) -> bool:
        """Whether nothing is left to turn."""
        return self.wanted == self.done

    def __call__(self, pos: Tensor) -> Tensor:
        return self.wanted(pos) - self.done(pos)


class Unscaled(Rotation):
    """A rotation without what it multiplies by: the rotary module has multiplied already."""

    def __init__(self, rotation: Rotation):
        super().__init__(rotation.size, rotation.interleaved)
        self.rotation = rotation

    def factors(self, pos: Tensor, centre: Tensor, keys: bool) -> Tensor:
        turned = self.rotation.factors(pos, centre, keys)
        return turned / turned.abs()
