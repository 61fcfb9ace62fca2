"""Checks on embeddings of positions: own position only, far positions apart, and no wrapping."""

import torch
from torch import Tensor

from .check import Measured, NotApplicable, module_check, worst
from .subject import ModuleSubject

MILLION = 1_000_000
"""Positions."""
REACHES = (256, 4096, 16_000, 131_072, MILLION)
REFUSALS = (IndexError, ValueError, AssertionError, RuntimeError, NotImplementedError)
"""What modules raise beyond their table."""


def embedded(subject: ModuleSubject, positions: Tensor, module=None) -> Tensor | None:
    """[T, C], or None where the module refuses those positions."""
    try:
        return subject.port.at(module if module is not None else subject.make(), positions)
    except REFUSALS:
        return None


@module_check(
    "own_position",
    "embedding",
    meaning="Tokens read later, alone or in chunks, are embedded otherwise than in one forward: cached decoding differs.",
    cause="The offset is ignored, or a row depends on the length of the input.",
)
def own_position(subject: ModuleSubject) -> Measured:
    """A position is embedded alike alone, among five, and among all."""
    whole = subject.port.at(subject.make(), torch.arange(40))
    found = []
    for last in (1, 5):
        part = subject.port.at(subject.make(), torch.arange(40 - last, 40))
        found.append(
            Measured((part - whole[-last:]).abs().max().item(), 1e-5 * (1 + whole.abs().max().item()), f"{last} tokens")
        )
    return worst(found)


FAR_MEANING = "After conversion to half precision far positions are embedded as other positions."


@module_check(
    "bfloat16",
    "embedding",
    meaning=FAR_MEANING,
    cause="Positions or angles follow the module's type; bfloat16 holds whole numbers up to 256.",
)
def bfloat16(subject: ModuleSubject) -> Measured:
    """After `.bfloat16()` positions up to a million are embedded as in float64, up to rounding."""
    return _rounding(subject, torch.bfloat16)


@module_check(
    "float16", "embedding", meaning=FAR_MEANING, cause="Positions or angles follow the module's type; float16 ends at 65,504."
)
def float16(subject: ModuleSubject) -> Measured:
    """After `.half()` positions up to a million are embedded as in float64, up to rounding."""
    return _rounding(subject, torch.float16)


def _rounding(subject: ModuleSubject, dtype: torch.dtype) -> Measured:
    """The worst difference over the last positions before each reach, up to the first that float64 refuses."""
    found = []
    for reach in REACHES:
        places = torch.arange(reach - 8, reach)
        exact, got = embedded(subject, places, subject.reference(dtype)), embedded(subject, places, subject.converted(dtype))
        if exact is None:
            break
        error = torch.inf if got is None else (got.double() - exact.double()).abs().nan_to_num(nan=torch.inf).max().item()
        allowed = exact.abs().max().item() * (4 * torch.finfo(dtype).eps + 2 * reach * 2.0**-24)
        found.append(Measured(error, allowed, f"at position {reach - 1:,}"))
    if not found:
        raise NotApplicable(f"refuses position {REACHES[0] - 1}")
    return worst(found)


@module_check(
    "distinct",
    "embedding",
    meaning="Different far positions are embedded alike, so their order is lost.",
    cause="Positions are rounded, clamped to the table, or wrap around.",
)
def distinct(subject: ModuleSubject) -> Measured:
    """No two neighbours are embedded alike in float32, nor after `.bfloat16()` below 4096; counts the pairs that are."""
    found = []
    for reach, dtype in ((4096, torch.float32), (4096, torch.bfloat16), (MILLION, torch.float32)):
        rows = embedded(subject, torch.arange(reach - 64, reach), subject.converted(dtype))
        if rows is not None:
            alike = int((rows[1:] == rows[:-1]).all(-1).sum())
            remark = f"{alike} of 63 neighbours below {reach:,} are alike in {str(dtype).removeprefix('torch.')}"
            found.append(Measured(float(alike), 0.0, remark if alike else ""))
    if not found:
        raise NotApplicable(f"refuses position {REACHES[0] - 1}")
    return worst(found)


@module_check(
    "never_wraps",
    "embedding",
    meaning="Beyond the table the model sees early positions again: long texts look like short ones, without an error.",
    cause="An index taken modulo the size of the table, or clamped to its end.",
)
def never_wraps(subject: ModuleSubject) -> Measured:
    """Far positions are refused or embedded apart from the first 2048; counts those that are embedded as an earlier one."""
    early = embedded(subject, torch.arange(2048))
    early = early if early is not None else embedded(subject, torch.arange(64))
    if early is None:
        raise NotApplicable("refuses position 63")
    found, start = 0, len(early)
    for reach in (start + 1, 2 * start, 4096, 8192, 131_072, MILLION):
        far = embedded(subject, torch.arange(reach - 1, reach))
        if far is not None and reach > start:
            found += bool((far == early).all(-1).any())
    return Measured(float(found), 0.0, f"{found} far positions are embedded as one of the first {start}" if found else "")


@module_check(
    "finite",
    "embedding",
    meaning="Long texts give nan.",
    cause="An overflow of the position, as of whole numbers above 65,504 in float16.",
)
def finite(subject: ModuleSubject) -> Measured:
    """Positions up to 131,072 and a million are finite or refused, in float32 and after `.half()`."""
    faults = []
    for reach in (131_072, MILLION):
        for dtype in (torch.float32, torch.float16):
            rows = embedded(subject, torch.arange(reach - 8, reach), subject.converted(dtype))
            if rows is not None and not bool(torch.isfinite(rows).all()):
                faults.append(f"{str(dtype).removeprefix('torch.')} at {reach:,}")
    return Measured(float(len(faults)), 0.0, f"not finite: {', '.join(faults)}" if faults else "")
