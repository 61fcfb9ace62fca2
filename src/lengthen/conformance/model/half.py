"""Checks that half precision does not reach positions, angles, distances or biases."""

import torch
from torch import Tensor

from .check import NotApplicable
from .register import model_check
from .subject import Subject
from .verdict import Measured, worst

MEANING = "In half precision the model loses the order of far tokens: long texts get worse, and float32 tests do not show it."
MILLION = 1_000_000
"""Positions."""
LONG = 1200
"""Tokens of a text, for models that take no positions."""


def rounded(subject: Subject, dtype: torch.dtype) -> Subject:
    """A float32 copy whose parameters, and nothing else, were rounded to `dtype`."""
    other = subject.fresh()
    for p in other.model.parameters():
        if p.is_floating_point():
            p.data = p.data.to(dtype).float()
    return other


def spread(subject: Subject, tokens: int) -> dict[str, Tensor]:
    """Positions [1, T]: consecutive, and ever further apart, up to a million."""
    near = torch.arange(tokens)
    return {
        "consecutive": near[None],
        **{f"up to {far:,}": (near * (far // tokens))[None] for far in (4096, 16_384, 131_072, MILLION)},
    }


def jolted(subject: Subject, dtype: torch.dtype) -> Subject:
    """A float32 copy whose parameters moved by random amounts, each as large as rounding to `dtype` can be."""
    other, generator = subject.fresh(), torch.Generator().manual_seed(7)
    half = torch.finfo(dtype).eps / 2
    for p in other.model.parameters():
        if p.is_floating_point():
            p.data = p.data * (1 + half * (2 * torch.rand(p.shape, generator=generator) - 1))
    return other


def gap(a: Tensor, b: Tensor) -> float:
    """The largest difference; infinite where either is not finite."""
    return (a - b).abs().nan_to_num(nan=torch.inf, posinf=torch.inf).amax().item()


def _far(subject: Subject, run: Subject, reference: Subject, dtype: torch.dtype) -> Measured:
    """Far positions cost no more precision than near ones: four times what near ones cost, or what rounding the weights alone
    costs at the same positions (a model may amplify any rounding there); and what float32 angles cost."""
    subject.requires("causal", "positions")
    if subject.facts.absolute:
        raise NotApplicable("positions are embedded, so only those of its table have an answer")
    ids, moved = subject.ids(32, rows=1), jolted(reference, dtype)
    mask, found, near = torch.ones_like(ids), [], 0.0
    for where, positions in spread(subject, ids.shape[1]).items():
        exact, error, noise = _noise(run, reference, moved, ids, mask, positions)
        near = error if where == "consecutive" else near
        size = exact.abs().max().item()
        allowed = 4 * max(near, noise) + 0.01 * size + int(positions.max()) * 2.0**-24 * size
        said = f"positions {where}; {near:.2g} where they are consecutive, {noise:.2g} by rounded weights"
        found.append(Measured(error, allowed, said))
    return worst(found)


def _noise(run: Subject, reference: Subject, moved: Subject, *where: Tensor) -> tuple[Tensor, float, float]:
    """Logits of the reference, how far those of `run` are from them, and those of weights that moved."""
    exact = reference.logits(*where)
    return exact, gap(run.logits(*where), exact), gap(moved.logits(*where), exact)


@model_check(
    "bfloat16",
    "precision",
    meaning=MEANING,
    cause="Frequencies or angles follow the model's type; bfloat16 holds whole numbers up to 256.",
)
def bfloat16(subject: Subject) -> Measured:
    """After `.bfloat16()` positions up to a million lose no more than neighbouring ones, against float32 with rounded weights."""
    return _far(subject, subject.converted(torch.bfloat16), rounded(subject, torch.bfloat16), torch.bfloat16)


@model_check(
    "float16", "precision", meaning=MEANING, cause="Frequencies or angles follow the model's type; float16 ends at 65,504."
)
def float16(subject: Subject) -> Measured:
    """After `.half()` positions up to a million lose no more than neighbouring ones, against float32 with rounded weights."""
    return _far(subject, subject.converted(torch.float16), rounded(subject, torch.float16), torch.float16)


@model_check(
    "autocast",
    "precision",
    meaning=MEANING,
    cause="Angles come out of a matmul or einsum, which autocast runs in half precision.",
)
def autocast(subject: Subject) -> Measured:
    """Under bfloat16 autocast positions up to a million lose no more than neighbouring ones, against float32."""
    return _far(subject, _Autocast(subject.fresh()), subject.fresh(), torch.bfloat16)


class _Autocast:
    """A subject whose forwards run under autocast."""

    def __init__(self, inner: Subject):
        self.inner = inner

    def logits(self, *how) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.inner.logits(*how)


@model_check(
    "bfloat16_long",
    "precision",
    meaning=MEANING,
    cause="A bias is slope times key index in half precision, or frequencies and positions follow the model's type.",
)
def bfloat16_long(subject: Subject) -> Measured:
    """After `.bfloat16()` the last tokens of a long text lose no more than the first, against float32 with rounded weights."""
    subject.requires("causal")
    tokens = subject.within(LONG)
    ids = subject.ids(tokens, rows=1)
    exact = rounded(subject, torch.bfloat16).logits(ids)
    error = (
        (subject.converted(torch.bfloat16).logits(ids) - exact).abs().nan_to_num(nan=torch.inf, posinf=torch.inf).amax(-1)[0]
    )
    early, late = error[: tokens // 8].mean().item(), error[-tokens // 4 :].mean().item()
    return Measured(
        late, 4 * early, f"mean over the last {tokens // 4} of {tokens} tokens; {early:.2g} over the first {tokens // 8}"
    )
