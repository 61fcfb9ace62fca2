"""Checks of the rotary tables themselves: cosines and sines up to a million, against float64."""

import tempfile
from math import inf
from pathlib import Path

import torch
from torch import Tensor

from .check import NotApplicable
from .register import model_check
from .rope_modules import RopeModule, rope_modules
from .subject import Subject
from .verdict import Measured, worst

PLACES = (0, 1, 2, 47, 255, 256, 257, 1023, 4097, 16_001, 65_537, 131_073, 999_999)
"""Positions; bfloat16 holds whole numbers up to 256, float16 ends at 65,504."""
MEANING = "Far tokens are turned by wrong angles: they are out of order, or out of reach, and nothing says so."


def measured(subject: Subject, tested: Subject, dtype: torch.dtype, what: str) -> Measured:
    """Tables of `tested` against float64 angles of the float32 frequencies of `subject`, in the worst place."""
    pairs = list(zip(rope_modules(subject.fresh()), rope_modules(tested), strict=True))
    return worst(_at(right.settled(place), run, place, dtype, what) for right, run in pairs for place in PLACES)


def _at(right: RopeModule, run: RopeModule, place: int, dtype: torch.dtype, what: str) -> Measured:
    given = run.table(torch.tensor([place]), dtype).double().squeeze(1)
    error = (given - spread(exact(right, place), given)).abs().nan_to_num(nan=inf).max().item()
    # A float32 product is off by half a unit in its last place, and half precision may round what it stands for once.
    angle = place * float(right.inv_freq.max()) * 2.0**-24
    allowed = 2 * angle + right.scaling * (torch.finfo(dtype).eps + 1e-6)
    return Measured(error, allowed, f"{what}, {right.label}, at position {place:,}")


def exact(right: RopeModule, place: int) -> Tensor:
    """Cosines and sines [2, R/2], float64."""
    angles = torch.from_numpy(right.inv_freq) * place
    return torch.stack((angles.cos(), angles.sin())) * right.scaling


def spread(half: Tensor, given: Tensor) -> Tensor:
    """[2, R/2] to the width of what a module gave: once per pair, or per channel, side by side or half a head apart."""
    if given.shape == half.shape:
        return half
    layouts = half.repeat(1, 2), half.repeat_interleave(2, dim=1)
    if given.shape != layouts[0].shape:
        raise NotApplicable(f"its tables have the shape {list(given.shape)}, for {half.shape[1]} frequencies")
    return min(layouts, key=lambda layout: (layout - given).abs().nan_to_num(nan=0.0).mean().item())


@model_check(
    "rotary_table",
    "precision",
    meaning=MEANING,
    cause="Angles are computed in half precision: by a matmul under autocast, or from hidden states of that type.",
)
def rotary_table(subject: Subject) -> Measured:
    """Cosines and sines up to position a million are those of float64, in float32, under autocast and for bfloat16 inputs."""
    found = [measured(subject, subject.fresh(), torch.float32, "float32")]
    found.append(measured(subject, subject.fresh(), torch.bfloat16, "bfloat16 hidden states"))
    with torch.autocast("cpu", torch.bfloat16):
        found.append(measured(subject, subject.fresh(), torch.float32, "bfloat16 autocast"))
    return worst(found)


@model_check(
    "rotary_table_converted",
    "precision",
    meaning=MEANING,
    cause="The frequencies are a buffer, and the conversion rounds it; load the model in that precision instead of converting it.",
)
def rotary_table_converted(subject: Subject) -> Measured:
    """After `.bfloat16()` and `.half()` cosines and sines up to position a million are those of float64, rounded."""
    kinds = (torch.bfloat16, torch.float16)
    return worst(measured(subject, subject.converted(k), k, f".to({k})") for k in kinds)


@model_check(
    "rotary_table_loaded",
    "precision",
    meaning=MEANING,
    cause="Frequencies are stored with the weights, or made in the type that is asked for.",
)
def rotary_table_loaded(subject: Subject) -> Measured:
    """Loaded in bfloat16 the model has the cosines and sines of float64 up to position a million, rounded."""
    subject.requires("reload")
    with tempfile.TemporaryDirectory() as folder:
        loaded = subject.converted(torch.bfloat16).reloaded(Path(folder))
    return measured(subject, loaded, torch.bfloat16, "loaded in bfloat16")
