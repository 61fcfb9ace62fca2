"""The check that half precision never reaches positions, angles, distances or biases."""

import copy
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from lengthen.core import Coordinates, Layout, LengthError, Plan, Scheme, visible

from .check import Measured, check
from .reach import MILLION
from .subject import SIZES, Stage, Subject, stage, stir


@check("precision", 1.0)
@torch.no_grad()
def precision(subject: Subject) -> Measured:
    """After `.bfloat16()`, `.half()` and under autocast, scores and embeddings are exact at positions up to a million.

    Compared with float64 under the same rounded parameters and inputs; value terms as well. The unit of the error is what rounding the turned queries and keys (and the embedded x) to bfloat16 may cost, plus
    float32 rounding of the biases. Rounding a position, an angle or a distance to bfloat16 costs a hundred units and more.
    """
    source = stir(subject.fresh(), subject.generator())
    for p in source.parameters():
        p.copy_(p.bfloat16())
    exact = copy.deepcopy(source).double()
    line, remark = _far_line(subject, exact)
    scene = stage(subject, exact, line, line.tokens).to(torch.bfloat16)
    reference = list(_observed(exact, scene.to(torch.float64), line))
    kinds = torch.bfloat16, torch.float16
    worst = max(_error(copy.deepcopy(source).to(kind), scene.to(kind), line, reference) for kind in kinds)
    with torch.autocast("cpu", torch.bfloat16):
        residual = replace(scene, x=scene.x.float())
        return Measured(max(worst, _error(copy.deepcopy(source).float(), residual, line, reference)), remark)


def _far_line(subject: Subject, scheme: Scheme) -> tuple[Coordinates, str]:
    """Tokens near zero, near a thousand and near a million; nearer where the method has no answer that far."""
    maps = [m for m in (scheme.positions, scheme.embedding_positions) if m is not None]
    if any(m.reads_tokens for m in maps):
        return Coordinates.plain(subject.train_length), "positions depend on tokens, so they were kept near"
    near = torch.arange(12)
    idx = torch.cat((near, near + 1001, near + MILLION - 12))[None]
    far = Coordinates(idx, idx)
    try:
        _embed(scheme, torch.zeros(1, far.tokens, SIZES.width, dtype=torch.float64), far)
    except LengthError:
        if not subject.limited:
            raise
        return Coordinates.plain(
            subject.train_length
        ), f"has no answer beyond {subject.train_length} tokens; checked up to there"
    return far, ""


def _embed(scheme: Scheme, x: Tensor, line: Coordinates) -> Tensor:
    pos = scheme.position(line.idx, torch.zeros_like(line.idx))[1]
    return x if scheme.embedding is None else scheme.embedding(x, pos)


def _error(tested: Scheme, scene: Stage, line: Coordinates, reference: list[tuple[Tensor, Tensor]]) -> float:
    found = _observed(tested, scene, line)
    units = [(a.double() - b).abs() / unit for (a, _), (b, unit) in zip(found, reference, strict=True)]
    return max(u.nan_to_num(nan=torch.inf).max().item() for u in units)


def _observed(scheme: Scheme, scene: Stage, line: Coordinates) -> Iterator[tuple[Tensor, Tensor]]:
    """Embedded x, visible scores and value terms, block by block; each with what rounding may cost it."""
    embedded = _embed(scheme, scene.x, line)
    yield embedded, 2**-7 * (embedded.abs() + scene.x.abs()) + 1e-3
    pos = scheme.position(line.idx, torch.zeros_like(line.idx))[0]
    layout, streams = Layout(line.at(pos), line.at(pos)), scene.streams(scheme)
    for rows in scheme.blocks(layout):
        own = tuple(None if s is None else s[:, rows] for s in streams["q_streams"])
        plan = scheme.plan(
            scene.q[:, :, rows], scene.k, scene.v, layout.part(rows), q_streams=own, k_streams=streams["k_streams"]
        )
        shown = visible(plan.layout, scheme.pattern)
        hide = lambda t, shown=shown: t.masked_fill(~shown, 0.0)
        logits = hide(plan.logits())
        yield logits, 2**-7 * hide(_sizes(plan, scheme)) + 2**-17 * logits.abs() + 2**-12
        weights = hide(torch.ones_like(logits)) / line.tokens
        values = plan.values(weights)
        yield values, 2**-7 * values.abs() + 1e-3


def _sizes(plan: Plan, scheme: Scheme) -> Tensor:
    """Nats: the scores if no product cancelled another, where queries or keys are rounded on the way; else nothing."""
    if scheme.rotation is None and scheme.temperature is None:
        return torch.zeros_like(plan.q[..., :1])
    share = plan.q.shape[1] // plan.k.shape[1]
    return plan.scale * (plan.q.abs() @ plan.k.abs().repeat_interleave(share, dim=1).transpose(-1, -2))
