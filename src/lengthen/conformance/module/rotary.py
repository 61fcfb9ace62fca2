"""Checks on rotary encodings: what they turn, how precisely, and whether decoding turns alike. Errors are nats of a score."""

import torch
from torch import Tensor

from .check import Measured, NotApplicable, module_check, worst
from .subject import WINDOW, ModuleSubject

MILLION = 1_000_000
"""Positions."""
STARTS = (0, 4096 - WINDOW, 16_000, 131_072 - WINDOW, MILLION - WINDOW)
HALVES_MEANING = "Far tokens share their angles: the order within a neighbourhood is lost, and long texts are read as noise."
Pair = tuple[Tensor, Tensor]


def scores(turned: Pair, rows: int) -> Tensor:
    """Nats of the last `rows` queries against all keys, float64 [H, rows, T]; keys that stand later count as zero."""
    q, k = (x[0].double() for x in turned)
    return (q[:, -rows:] @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).tril(k.shape[1] - rows)


def size(q: Tensor, k: Tensor) -> float:
    """Nats of a score if nothing in the product cancelled."""
    return (q.norm(dim=-1).max() * k.norm(dim=-1).max()).item() / q.shape[-1] ** 0.5


def angle_error(position: int) -> float:
    """Radians by which a float32 angle may be off: its frequency and the product are rounded once each, on either side."""
    return 4 * position * 2.0**-24


def gap(difference: Tensor) -> float:
    """The largest absolute value; infinite where there is nan."""
    return difference.abs().nan_to_num(nan=torch.inf, posinf=torch.inf).max().item()


def require_anywhere(subject: ModuleSubject) -> None:
    if not subject.port.anywhere:
        raise NotApplicable("tokens can only be turned from position 0 on")


@module_check(
    "relative",
    "rotary",
    meaning="The score of two tokens depends on where in the text they stand, so what was learned near the start is lost far on.",
    cause="Positions or angles in half precision, or queries and keys turned about different centres.",
)
def relative(subject: ModuleSubject) -> Measured:
    """The score of a query and a key depends on their distance only: shifted by up to 100,000 tokens they score the same."""
    require_anywhere(subject)
    q, k = subject.vectors(WINDOW)
    module, found = subject.make(), []
    still = scores(subject.port.turn(module, q, k, 0), WINDOW)
    for by in (1, 100, 1000, 100_000):
        moved = scores(subject.port.turn(module, q, k, by), WINDOW)
        found.append(Measured(gap(moved - still), (1e-5 + angle_error(by)) * size(q, k), f"shifted by {by:,} tokens"))
    return worst(found)


@module_check(
    "offset",
    "rotary",
    meaning="Tokens read later through an offset are turned otherwise than in one forward, so decoding differs from training.",
    cause="The offset is ignored, counted twice, or positions are taken from the number of new tokens.",
)
def offset(subject: ModuleSubject) -> Measured:
    """The last token, and the last five, turned alone at their offset are what they are among all."""
    require_anywhere(subject)
    q, k = subject.vectors(40)
    whole, found = subject.port.turn(subject.make(), q, k, 0), []
    for last in (1, 5):
        part = subject.port.turn(subject.make(), q[:, :, -last:], k[:, :, -last:], 40 - last)
        error = max(gap(a - b[:, :, -last:]) for a, b in zip(part, whole, strict=True))
        found.append(Measured(error, 1e-4, f"{last} tokens at offset {40 - last}"))
    return worst(found)


@module_check(
    "cached_scores",
    "rotary",
    meaning="Generation computes other scores than training did: perplexity is right, and generated text degrades.",
    cause="Queries are centred or scaled for another length than the cached keys, or aligned with the first keys, not the last.",
)
def cached_scores(subject: ModuleSubject) -> Measured:
    """The last token, and the last five, against cached keys score as they do in one forward."""
    q, k = subject.vectors(60)
    found = []
    for last in (1, 5):
        whole = scores(subject.port.turn(subject.make(), q, k, 0), last)
        step = scores(subject.port.cached(subject.make(), q[:, :, -last:], k), last)
        found.append(Measured(gap(step - whole), 1e-5 * size(q, k), f"{last} new tokens, 60 keys"))
    return worst(found)


@module_check(
    "bfloat16",
    "rotary",
    meaning=HALVES_MEANING,
    cause="Frequencies or angles follow the module's type; bfloat16 holds whole numbers up to 256.",
)
def bfloat16(subject: ModuleSubject) -> Measured:
    """After `.bfloat16()` tokens at positions up to a million score as in float64, up to rounding of what was turned."""
    return rounding(subject, subject.converted(torch.bfloat16), subject.reference(torch.bfloat16), torch.bfloat16)


@module_check(
    "float16", "rotary", meaning=HALVES_MEANING, cause="Frequencies or angles follow the module's type; float16 ends at 65,504."
)
def float16(subject: ModuleSubject) -> Measured:
    """After `.half()` tokens at positions up to a million score as in float64, up to rounding of what was turned."""
    return rounding(subject, subject.converted(torch.float16), subject.reference(torch.float16), torch.float16)


@module_check(
    "bfloat16_inputs",
    "rotary",
    meaning=HALVES_MEANING,
    cause="Positions are made in the type of the queries; bfloat16 holds whole numbers up to 256.",
)
def bfloat16_inputs(subject: ModuleSubject) -> Measured:
    """A float32 module turns bfloat16 queries and keys at positions up to a million as in float64, up to rounding."""
    return rounding(subject, subject.make(), subject.reference(None), torch.bfloat16)


@module_check(
    "float16_inputs",
    "rotary",
    meaning=HALVES_MEANING,
    cause="Positions are made in the type of the queries; float16 ends at 65,504.",
)
def float16_inputs(subject: ModuleSubject) -> Measured:
    """A float32 module turns float16 queries and keys at positions up to a million as in float64, up to rounding."""
    return rounding(subject, subject.make(), subject.reference(None), torch.float16)


@module_check(
    "autocast",
    "rotary",
    meaning=HALVES_MEANING,
    cause="The angles come out of an einsum or matmul, which autocast runs in half precision.",
)
def autocast(subject: ModuleSubject) -> Measured:
    """Under bfloat16 autocast tokens at positions up to a million score as in float64, up to rounding."""
    with torch.autocast("cpu", torch.bfloat16):
        return rounding(subject, subject.make(), subject.reference(None), torch.bfloat16, inputs=torch.float32)


def rounding(subject, tested, exact, dtype: torch.dtype, inputs: torch.dtype | None = None) -> Measured:
    """The worst difference of scores of far queries; up to the first position where float64 itself is not finite."""
    (q, k), found = subject.vectors(WINDOW if subject.port.anywhere else 4096), []
    cast = inputs if inputs is not None else dtype
    for start in STARTS if subject.port.anywhere else (0,):
        with torch.autocast("cpu", enabled=False):
            wanted = _near_and_far(subject, exact, q.double(), k.double(), start)
        if not bool(torch.isfinite(wanted).all()):
            break
        error = gap(_near_and_far(subject, tested, q.to(cast), k.to(cast), start) - wanted)
        end = start + q.shape[-2] - 1
        found.append(Measured(error, (torch.finfo(dtype).eps + angle_error(end)) * size(q, k), f"at position {end:,}"))
    return worst(found)


def _near_and_far(subject: ModuleSubject, module, q: Tensor, k: Tensor, start: int) -> Tensor:
    """Scores of the last queries of a window that begins at `start`, with its keys and with keys that begin at 0."""
    queries, near = subject.port.turn(module, q, k, start)
    far = subject.port.turn(module, q, k, 0)[1] if start else near
    with torch.autocast("cpu", enabled=False):
        return torch.cat([scores((queries, keys), WINDOW) for keys in (near, far)])


@module_check(
    "finite",
    "rotary",
    meaning="Long texts give nan: the model breaks outright beyond some length.",
    cause="A factor that grows with the position (xPos) is stored as zeta^(+p) for queries and zeta^(-p) for keys.",
)
def finite(subject: ModuleSubject) -> Measured:
    """Tokens at positions up to 131,072 and a million are finite after turning, in float32 and half precision."""
    faults = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        reach = next((n for n in (131_072, MILLION) if not _is_finite(subject, n, dtype)), None)
        if reach is not None:
            faults.append(f"{str(dtype).removeprefix('torch.')} at {reach:,}")
    return Measured(float(len(faults)), 0.0, f"not finite: {', '.join(faults)}" if faults else "")


def _is_finite(subject: ModuleSubject, reach: int, dtype: torch.dtype) -> bool:
    """Whether the last tokens of a text of `reach` tokens are finite; all of them where they must begin at 0."""
    tokens = WINDOW if subject.port.anywhere else reach
    q, k = (x.to(dtype).expand(1, -1, tokens, -1) for x in subject.vectors(1))
    return all(bool(torch.isfinite(x).all()) for x in subject.port.turn(subject.make(), q, k, reach - tokens))
