"""Checks on rotary encodings: what they turn, how precisely, and whether decoding turns alike."""

import torch
from torch import Tensor

from .check import Measured, NotApplicable, module_check
from .subject import WINDOW, ModuleSubject

MILLION = 1_000_000
"""Positions."""
STARTS = (0, 4096 - WINDOW, 16_000, 131_072, MILLION - WINDOW)
HALVES = (torch.bfloat16, torch.float16)


def _scores(q: Tensor, k: Tensor) -> Tensor:
    """Products of turned queries and keys [1, H, T, D] in float64, as shares of |q| |k| of the largest ones."""
    return q.double() @ k.double().transpose(-1, -2) / q.shape[-1]


def _angle_error(position: int) -> float:
    """Radians that a float32 angle may be off at a position: the frequency and the product are each rounded once."""
    return 2 * position * 2.0**-24


def _starts(subject: ModuleSubject) -> tuple[int, ...]:
    return STARTS if subject.port.anywhere else STARTS[:1]


@module_check(
    "relative",
    "rotary",
    meaning="The score of two tokens depends on where in the text they stand, so what was learned near the start does not carry over.",
    cause="Positions or angles in half precision, or queries and keys turned by different centres.",
)
def relative(subject: ModuleSubject) -> Measured:
    """The score of a query and a key depends on their distance only: tokens shifted by up to 100,000 score the same."""
    if not subject.port.anywhere:
        raise NotApplicable("tokens can only be turned from position 0")
    q, k = subject.vectors(WINDOW)
    module, found = subject.make(), []
    still = _scores(*subject.port.turn(module, q, k, 0))
    for by in (1, 100, 1000, 100_000):
        moved = _scores(*subject.port.turn(module, q, k, by))
        found.append(Measured(_worst(moved - still), 1e-5 + _angle_error(by), f"shifted by {by:,} tokens"))
    return max(found)


@module_check(
    "offset",
    "rotary",
    meaning="Tokens read later through an offset are turned otherwise than in one forward, so cached decoding differs from training.",
    cause="The offset is ignored, counted twice, or positions are taken from the length of the new tokens.",
)
def offset(subject: ModuleSubject) -> Measured:
    """The last token, and the last five, turned alone at their offset are what they are among all."""
    if not subject.port.anywhere:
        raise NotApplicable("tokens can only be turned from position 0")
    q, k = subject.vectors(40)
    whole = subject.port.turn(subject.make(), q, k, 0)
    found = []
    for last in (1, 5):
        part = subject.port.turn(subject.make(), q[:, :, -last:], k[:, :, -last:], 40 - last)
        error = max(_worst(a - b[:, :, -last:]) for a, b in zip(part, whole, strict=True))
        found.append(Measured(error, 1e-4, f"{last} tokens at offset {40 - last}"))
    return max(found)


@module_check(
    "cached_scores",
    "rotary",
    meaning="Generation computes other scores than training did: perplexity is right, and text degrades.",
    cause="Queries are centred or scaled for another length than the cached keys, or aligned with the first keys, not the last.",
)
def cached_scores(subject: ModuleSubject) -> Measured:
    """The last token, and the last five, against cached keys score as they do in one forward."""
    q, k = subject.vectors(60)
    whole = _scores(*subject.port.turn(subject.make(), q, k, 0))
    found = []
    for last in (1, 5):
        step = _scores(*subject.port.cached(subject.make(), q[:, :, -last:], k))
        found.append(Measured(_worst(step - whole[:, :, -last:]), 1e-5, f"{last} tokens against {60} cached keys"))
    return max(found)


@module_check(
    "precision_module",
    "rotary",
    meaning="After conversion to half precision far tokens share their angles: order within a neighbourhood is lost.",
    cause="Frequencies or angles are kept in the module's type; bfloat16 holds whole numbers only up to 256.",
)
def precision_module(subject: ModuleSubject) -> Measured:
    """After `.bfloat16()` and `.half()` tokens at positions up to a million are turned as in float64, up to rounding."""
    return max(_rounding(subject, dtype, convert=True) for dtype in HALVES)


@module_check(
    "precision_inputs",
    "rotary",
    meaning="Queries in half precision, as under mixed precision, are turned by wrong angles at far positions.",
    cause="Positions are made in the type of the queries; bfloat16 holds whole numbers only up to 256.",
)
def precision_inputs(subject: ModuleSubject) -> Measured:
    """A float32 module turns half-precision queries and keys at positions up to a million as in float64, up to rounding."""
    return max(_rounding(subject, dtype, convert=False) for dtype in HALVES)


@module_check(
    "autocast",
    "rotary",
    meaning="Training or generating under autocast turns far tokens by wrong angles.",
    cause="The angles come out of an einsum or matmul, which autocast runs in half precision.",
)
def autocast(subject: ModuleSubject) -> Measured:
    """Under bfloat16 autocast tokens at positions up to a million are turned as in float64, up to rounding."""
    with torch.autocast("cpu", torch.bfloat16):
        return _rounding(subject, torch.bfloat16, convert=False, inputs=torch.float32)


def _rounding(subject: ModuleSubject, dtype: torch.dtype, convert: bool, inputs: torch.dtype | None = None) -> Measured:
    """The worst difference from float64 over windows of tokens; a window that starts at 0 alone spans 4096 tokens."""
    tokens = WINDOW if subject.port.anywhere else 4096
    q, k = subject.vectors(tokens)
    tested, found = subject.converted(dtype) if convert else subject.make(), []
    cast = inputs if inputs is not None else dtype
    for start in _starts(subject):
        turned = subject.port.turn(tested, q.to(cast), k.to(cast), start)
        with torch.autocast("cpu", enabled=False):
            exact = subject.port.turn(subject.reference(dtype), q.double(), k.double(), start)
        pairs = zip(turned, exact, strict=True)
        size = max(x.abs().max().item() for x in (*exact, q, k))
        error = max(_worst(a.double() - b) for a, b in pairs)
        allowed = size * (4 * torch.finfo(dtype).eps + _angle_error(start + tokens))
        found.append(Measured(error, allowed, f"{str(dtype).removeprefix('torch.')} at position {start + tokens - 1:,}"))
    return max(found)


@module_check(
    "finite",
    "rotary",
    meaning="Long texts give nan: the model breaks outright beyond some length.",
    cause="A factor that grows with the position (xPos) is stored as zeta^(+p) for queries and zeta^(-p) for keys.",
)
def finite(subject: ModuleSubject) -> Measured:
    """Queries and keys at positions up to 131,072 and a million are finite in float32 and half precision."""
    faults = []
    for reach in (131_072, MILLION):
        for dtype in (torch.float32, *HALVES):
            if not _is_finite(subject, reach, dtype):
                faults.append(f"{str(dtype).removeprefix('torch.')} at {reach:,}")
    return Measured(float(len(faults)), 0.0, f"not finite: {', '.join(faults)}" if faults else "")


def _is_finite(subject: ModuleSubject, reach: int, dtype: torch.dtype) -> bool:
    """Whether the tokens of a text of `reach` tokens are finite after turning."""
    q, k = (x.to(dtype)[:, :1, :1].expand(1, 1, reach, -1) for x in subject.vectors(1))
    return all(bool(torch.isfinite(x).all()) for x in subject.port.turn(subject.make(), q, k, 0))


def _worst(difference: Tensor) -> float:
    """The largest absolute value; infinite where there is nan."""
    return difference.abs().nan_to_num(nan=torch.inf).max().item()
