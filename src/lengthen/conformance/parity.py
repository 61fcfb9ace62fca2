"""The check that every backend computes what the dense one does."""

import torch
from torch import Tensor

from lengthen.backends import BACKENDS, SDPA, Backend, Blocked, refusal
from lengthen.core import Scheme

from .check import Measured, NotApplicable, check, gap
from .subject import Stage, Subject, lines, stage

SMALL = {"sdpa in small blocks": SDPA(short=64, rows=16, masks=1 << 12), "blocked in small tiles": Blocked(rows=16, columns=16)}
"""Backends whose blocks are so small that short rows take the paths of long ones."""


@check("backends", 1e-9)
def backends(subject: Subject) -> Measured:
    """Every backend gives the outputs and all gradients of the dense one in float64, or refuses with its reason.

    Rows plain, padded and packed, read whole and as the last five queries and the last one; gradients of queries, keys,
    values, residual stream and every parameter of the scheme. A backend without a backward pass is asked for the
    outputs of the last five queries.
    """
    scheme, refused, worst = subject.scheme(), {}, {}
    for line in lines(37).values():
        for queries in (37, 5, 1):
            scene = stage(subject, scheme, line, queries)
            expected = _run(scheme, scene, BACKENDS["dense"])
            for name, backend in {**BACKENDS, **SMALL}.items():
                if name == "dense":
                    continue
                try:
                    worst[name] = max(worst.get(name, 0.0), _difference(scheme, scene, backend, expected))
                except Refused as e:
                    refused[name] = str(e)
    seen = [f"{name}: {error:.1g}" for name, error in worst.items()]
    remark = "; ".join([*seen, *(f"{name} refuses: {why}" for name, why in refused.items())])
    if not worst:
        raise NotApplicable(remark)
    return Measured(max(worst.values()), remark)


class Refused(Exception):
    """A backend cannot serve a plan, with the reason."""


def _difference(scheme: Scheme, scene: Stage, backend: Backend, expected: list[Tensor]) -> float:
    try:
        found = _run(scheme, scene, backend)
    except Refused:
        if scene.layout.q.tokens != 5:
            raise
        with torch.no_grad():
            found = _run(scheme, scene, backend)
    return max(gap(a, b) for a, b in zip(found, expected, strict=False))


def _run(scheme: Scheme, scene: Stage, backend: Backend) -> list[Tensor]:
    """The output and, where gradients are on, those of a random function of it."""
    grad = torch.is_grad_enabled()
    own = scene.leaf(grad)
    plan = own.plan(scheme)
    why = refusal(backend, plan)
    if why is not None:
        raise Refused(why)
    out = backend(plan)
    if not grad:
        return [out]
    wanted = [*own.leaves, *(p for p in scheme.parameters() if p.requires_grad)]
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(0), dtype=out.dtype)
    found = torch.autograd.grad((out * weight).sum(), wanted, allow_unused=True)
    return [out.detach(), *(torch.zeros_like(t) if g is None else g for t, g in zip(wanted, found, strict=True))]
