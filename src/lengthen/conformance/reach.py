"""Checks on far positions: shifts, and reading far beyond the training length."""

import torch

from lengthen.core import Coordinates, LengthError, Scheme

from .check import Measured, NotApplicable, check, gap
from .subject import SIZES, Stage, Subject, moved, stage

MILLION = 1_000_000
"""Tokens."""


@check("shift", 1e-8)
@torch.no_grad()
def shift(subject: Subject) -> float:
    """Adding a constant, up to a million, to all positions of a relative method leaves the logits unchanged."""
    scheme, ids = subject.scheme(), subject.ids(36)
    if not scheme.relative:
        raise NotApplicable("declares itself not relative")
    still = subject.decoder(scheme)(ids)
    return max(gap(subject.decoder(moved(scheme, lambda pos, by=by: pos + by))(ids), still) for by in (1, 1000, MILLION))


@check("far", 0.0)
@torch.no_grad()
def far(subject: Subject) -> Measured:
    """At eight times the training length logits are finite and positions neither wrap around nor pile up in a table.

    A method that declares itself limited may raise a LengthError instead. Counts the faults found.
    """
    scheme, tokens = subject.scheme(), 8 * subject.train_length
    try:
        logits = subject.decoder(scheme)(subject.ids(tokens, rows=1))
    except LengthError as e:
        if subject.limited:
            return Measured(0.0, f"refused: {e}")
        raise
    faults = []
    if not bool(torch.isfinite(logits).all()):
        faults.append(f"logits are not finite at {tokens} tokens")
    faults += _wraps_around(subject, scheme, tokens) + _piles_up(scheme, tokens)
    return Measured(float(len(faults)), "; ".join(faults))


def _wraps_around(subject: Subject, scheme: Scheme, tokens: int) -> list[str]:
    """With all queries alike and all keys alike, the scores of the last query must not repeat along the keys."""
    scene = stage(subject, scheme, Coordinates.plain(tokens), tokens)
    same = Stage(*(t[..., :1, :].expand_as(t) for t in scene.leaves), scene.layout)
    row = same.plan(scheme).logits()[0, :, -1]
    row = row[row.std(-1) > 1e-12]
    if not len(row):
        return []
    for period in range(1, tokens // 2 + 1):
        if gap(row[:, period:], row[:, :-period]) < 1e-12:
            return [f"scores repeat every {period} keys"]
    return []


def _piles_up(scheme: Scheme, tokens: int) -> list[str]:
    """No two positions may be embedded alike."""
    if scheme.embedding is None:
        return []
    pos = torch.arange(tokens)[None]
    x = scheme.embedding(torch.zeros(1, tokens, SIZES.width, dtype=torch.float64), pos)[0]
    apart = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist") + torch.eye(tokens)
    if apart.min() > 1e-9:
        return []
    a, b = sorted(divmod(int(apart.argmin()), tokens))
    return [f"positions {a} and {b} are embedded alike"]
