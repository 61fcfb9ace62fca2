"""Checks on additive biases: alignment of fewer queries than keys, distances in half precision, far keys."""

import torch
from torch import Tensor

from .check import Measured, NotApplicable, module_check, worst
from .subject import ModuleSubject, parameters

FAR = (4096, 65_536)
"""Keys."""


@module_check(
    "shift_invariance",
    "bias",
    meaning="Tokens at the same distance are biased differently in different places, beyond what a softmax row ignores.",
    cause="The bias is built from absolute key positions, or wraps in a table.",
)
def shift_invariance(subject: ModuleSubject) -> Measured:
    """Relative to a query's own key, the bias of an earlier key depends on the distance only."""
    square = subject.port.block(subject.make(), 48, 48).double()
    own = square - square.diagonal(dim1=-2, dim2=-1)[..., None]
    found = 0.0
    for distance in range(48):
        along = own.diagonal(-distance, dim1=-2, dim2=-1)
        found = max(found, (along - along[..., :1]).abs().max().item())
    return Measured(found, 1e-5 * (1 + square.abs().max().item()))


@module_check(
    "alignment",
    "bias",
    meaning="A decoding step biases the wrong keys: generation runs as if the newest token stood at the beginning.",
    cause="The bias of fewer queries than keys is cut from the top left corner, not the bottom right.",
)
def alignment(subject: ModuleSubject) -> Measured:
    """With fewer queries than keys the last rows of the square come out: for one, two, five and all tokens."""
    found = []
    for keys in (7, 200):
        square = subject.port.block(subject.make(), keys, keys).double()
        for queries in (1, 2, 5, keys):
            step = subject.port.block(subject.make(), queries, keys).double()
            error = (step - square[:, -queries:]).abs().max().item()
            found.append(Measured(error, 1e-5 * (1 + square.abs().max().item()), f"{queries} queries, {keys} keys"))
    return worst(found)


@module_check(
    "one_token_row",
    "bias",
    meaning="Generation runs without any position: the bias of a single query is one number for all keys, which softmax ignores.",
    cause="The bias is built from the window of queries, so one token is biased as if it were at distance 0 of every key.",
)
def one_token_row(subject: ModuleSubject) -> Measured:
    """The bias of a single query varies over the keys as much as the last row of the square does."""
    spread = lambda rows: (rows.amax(-1) - rows.amin(-1)).double()
    full = spread(subject.port.block(subject.make(), 200, 200)[:, -1])
    if not bool((full > 0).any()):
        raise NotApplicable("the last row of the square is constant")
    single = spread(subject.port.block(subject.make(), 1, 200)[:, -1])
    return Measured((full - single).abs().max().item(), 1e-5 * (1 + full.max().item()))


@module_check(
    "decay",
    "bias",
    meaning="Far tokens are rewarded and near ones suppressed: the sign of the distance is wrong.",
    cause="query - key and key - query were exchanged.",
)
def decay(subject: ModuleSubject) -> Measured:
    """Where a bias without trained parameters is monotone in the distance, it falls."""
    if any(p.requires_grad for p in parameters(subject.make())):
        raise NotApplicable("the bias is trained")
    rows = subject.port.block(subject.make(), 1, 129)[:, 0].double()
    steps = rows.diff(dim=-1)
    monotone = (steps > 0).all(-1) | (steps < 0).all(-1)
    if not bool(monotone.any()):
        raise NotApplicable("the bias is not monotone in the distance")
    rising = int(((steps < 0).all(-1)).sum())
    return Measured(float(rising), 0.0, f"{rising} of {len(rows)} heads reward far keys" if rising else "")


FAR_MEANING = "After conversion to half precision the bias is off by whole nats at far distances."


@module_check(
    "bfloat16", "bias", meaning=FAR_MEANING, cause="Distances or slopes are rounded; bfloat16 holds whole numbers up to 256."
)
def bfloat16(subject: ModuleSubject) -> Measured:
    """After `.bfloat16()` one row over 4096 and 65,536 keys is that of float64 under the same rounded weights."""
    return _rounding(subject, torch.bfloat16)


@module_check("float16", "bias", meaning=FAR_MEANING, cause="Distances or slopes are rounded; float16 ends at 65,504.")
def float16(subject: ModuleSubject) -> Measured:
    """After `.half()` one row over 4096 and 65,536 keys is that of float64 under the same rounded weights."""
    return _rounding(subject, torch.float16)


def _rounding(subject: ModuleSubject, dtype: torch.dtype) -> Measured:
    """The largest error in nats; what a near value may lose to rounding is allowed, and 0.02 nats."""
    found = []
    for keys in FAR:
        exact, got = _rows(subject, dtype, keys)
        error = (got - exact).abs().nan_to_num(nan=torch.inf, posinf=torch.inf).max().item()
        near = exact[:, -64:].abs().max().item()
        found.append(Measured(error, 0.02 + 2 * torch.finfo(dtype).eps * near, f"{keys:,} keys"))
    return worst(found)


@module_check(
    "distinct",
    "bias",
    meaning="After conversion to half precision neighbouring far keys tie: their order is lost.",
    cause="The product of slope and distance is kept in half precision, which has 8 or 11 significant bits.",
)
def distinct(subject: ModuleSubject) -> Measured:
    """Neighbouring keys whose biases differ in float64 differ after `.bfloat16()` too, at 4096 keys; counts the ties."""
    exact, got = _rows(subject, torch.bfloat16, FAR[0])
    apart = exact.diff(dim=-1) != 0
    if not bool(apart.any()):
        raise NotApplicable("neighbouring keys are biased alike in float64 too")
    # Differences that float32 itself cannot hold beside the values are nobody's fault.
    apart &= exact.diff(dim=-1).abs() > 4 * torch.finfo(torch.float32).eps * exact[:, 1:].abs()
    ties = int((apart & (got.diff(dim=-1) == 0)).sum())
    values = min(len(row.unique()) for row in got)
    return Measured(
        float(ties), 0.0, f"{ties / int(apart.sum()):.0%} of neighbours tie; {values} distinct values" if ties else ""
    )


@module_check(
    "finite",
    "bias",
    meaning="Long texts give nan or minus infinity: keys that should be seen are not.",
    cause="A logarithm, power or table that was written for the training length.",
)
def finite(subject: ModuleSubject) -> Measured:
    """The bias of one query over 131,072 and a million keys is finite."""
    faults = []
    for keys in (131_072, 1_000_000):
        row = subject.port.block(subject.make(), 1, keys)
        if not bool(torch.isfinite(row).all()):
            faults.append(f"{keys:,} keys")
    return Measured(float(len(faults)), 0.0, f"not finite at {', '.join(faults)}" if faults else "")


def _rows(subject: ModuleSubject, dtype: torch.dtype, keys: int) -> tuple[Tensor, Tensor]:
    """The last row [H, K] in float64 under the rounded weights, and that of the converted module."""
    got = subject.port.block(subject.converted(dtype), 1, keys)[:, 0].double()
    return subject.port.block(subject.reference(dtype), 1, keys)[:, 0].double(), got
