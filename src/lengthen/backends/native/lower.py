"""From a plan to what the kernel reads: a table of scores by column minus row, and the columns that each row sees."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthen.core import Needs, Plan, ScoreTerm, Warp

from ..columns import Ramp, ramp, seen_columns

_LOG2E = math.log2(math.e)
_BEYOND = 16
"""Entries of psi past its end: the kernel reads whole vectors."""


@dataclass(frozen=True)
class Lowered:
    """One plane of scores for the kernel."""

    table: Tensor | None
    """[H|1, Q + K - 1], nats times log2(e), for row r and column c at c - r + Q - 1; None: no such terms. May require a gradient."""
    warp: tuple[Tensor, ...]
    """Nothing, or psi [Q + K - 1 + 16] laid out as the table, factor [B|1, Q], slopes and offsets [H, S + 1] in base 2; these
    may require gradients. Then the largest score of each head [H], and int32 [B|1, Q, S], the first column below each knot."""
    seen: Tensor
    """int32 [1|B, Q, n, 2], half-open intervals of columns."""


def lower(plan: Plan) -> Lowered | str:
    """The plan for the kernel, or a sentence that says why not. Made once per layout, for all its layers."""
    layout = plan.layout
    seen = seen_columns(layout, plan.pattern)
    if isinstance(seen, str):
        return f"The native backend {seen}"
    if not plan.terms:
        return Lowered(None, (), seen)
    warped = [t for t in plan.terms if t.needs == Needs.WARPED]
    if len(warped) > 1 or (warped and not plan.pattern.causal):
        return "The native backend takes one warped term, under a causal pattern. Use the sdpa or the blocked backend."
    line = ramp(layout)
    if isinstance(line, str):
        return f"The native backend {line}"
    key = ("slot table", plan.terms, plan.dtype, torch.is_grad_enabled())
    table, warp = layout.remember(key, lambda: _added(plan, line))
    return Lowered(table, warp, seen)


def _added(plan: Plan, line: Ramp) -> tuple[Tensor | None, tuple[Tensor, ...]]:
    """Distances fall from that of the last row and the first column. Computed in float64 and rounded once."""
    queries, keys = plan.q.shape[2], plan.k.shape[2]
    tables = [t for t in plan.terms if t.needs == Needs.DISTANCE]
    with torch.autocast("cpu", enabled=False):
        apart = torch.arange(queries - 1, -keys, -1, dtype=torch.float64)
        distance = line.first + line.step * apart
        table = (sum(t.at(distance) for t in tables) * _LOG2E).to(plan.dtype).contiguous() if tables else None
        warped = (t for t in plan.terms if t.needs == Needs.WARPED)
        return table, next((_warp(t, apart, line, plan) for t in warped), ())


def _warp(term: ScoreTerm, apart: Tensor, line: Ramp, plan: Plan) -> tuple[Tensor, ...]:
    """Knots that no pair reaches are left out. apart: row minus column, falling."""
    made = term.warp(line.first + line.step * apart, plan.layout.q.pos)
    largest = (made.psi.amax() * made.factor.amax()).detach()
    kept = made.knots[made.knots < largest]
    slopes, offsets = (t[:, : len(kept) + 1] * _LOG2E for t in (made.slopes, made.offsets))
    corners = torch.cat((kept, largest[None]))
    # The largest of a head lies at x = 0 or at a corner.
    top = torch.maximum(offsets[:, 0], (slopes * corners + offsets).amax(1)).detach()
    psi = torch.nn.functional.pad(made.psi, (0, _BEYOND))
    lines = [t.to(plan.dtype).contiguous() for t in (psi, made.factor, slopes, offsets, top)]
    return *lines, _edges(made, kept, apart, line)


def _edges(warp: Warp, knots: Tensor, apart: Tensor, line: Ramp) -> Tensor:
    """int32 [B|1, Q, S]: columns before it stand farther than the knot."""
    back = line.first + line.step * apart >= 0
    away, psi = apart[back].flip(0), warp.psi.detach()[back].flip(0).contiguous()
    at = torch.searchsorted(psi, (knots / warp.factor.detach()[..., None]).contiguous())
    rows = torch.arange(warp.factor.shape[1], dtype=torch.float64)[:, None]
    if not len(away):
        return at.to(torch.int32).contiguous()
    farther = torch.cat((away, away[-1:] + 1))[at]
    return (rows - farther + 1).to(torch.int32).contiguous()
