"""How far an attention is from the exact one: float64, on a sample of its queries, without any backend."""

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthen.core import Layout, Scheme

from .case import Scene

BLOCKS, ROWS = 8, 4
"""Blocks of consecutive queries that are read, and queries per block: what 16k tokens take is then a few MiB."""


@dataclass(frozen=True)
class Errors:
    """The largest absolute errors over the sampled queries."""

    output: float
    gradient: float | None
    """Of the gradient of the queries; None where the pass has none."""


def sampled(queries: int) -> list[slice]:
    """BLOCKS blocks of ROWS queries, the first and the last included; all queries where there are no more."""
    if queries <= BLOCKS * ROWS:
        return [slice(0, queries)]
    starts = torch.linspace(0, queries - ROWS, BLOCKS).long().tolist()
    return [slice(a, a + ROWS) for a in starts]


def errors(scheme: Scheme, scene: Scene, found: list[Tensor], backward: bool, turned: bool = False, layers: int = 1) -> Errors:
    """Compares what a step gave, [output, gradient of q, ...], with `exact` rows.

    turned: the scene's keys are turned already. layers: how often the gradient was added up.
    """
    worst_output = worst_gradient = 0.0
    for rows in sampled(scene.q.shape[2]):
        output, gradient = exact(scheme, scene, rows, turned)
        worst_output = max(worst_output, _gap(found[0][:, :, rows], output))
        if backward:
            worst_gradient = max(worst_gradient, _gap(found[1][:, :, rows] / layers, gradient))
    return Errors(worst_output, worst_gradient if backward else None)


def exact(scheme: Scheme, scene: Scene, rows: slice, turned: bool = False) -> tuple[Tensor, Tensor]:
    """Output and gradient of q, each float64 [B, H, rows, D], of some queries: softmax over the plan's own logits."""
    scheme = deepcopy(scheme).double()
    layout = scene.layout(scheme)
    stop = min(rows.stop + layout.order_shift, layout.k.tokens) if scheme.pattern.causal else layout.k.tokens
    streams = scene.streams(scheme, torch.float64)
    q = scene.q[:, :, rows].detach().double().requires_grad_()
    plan = scheme.plan(
        q,
        scene.k[:, :, :stop].detach().double(),
        scene.v[:, :, :stop].detach().double(),
        Layout(layout.q.take(rows), layout.k.take(slice(0, stop))),
        q_streams=tuple(None if s is None else s[:, rows] for s in streams["q_streams"]),
        k_streams=tuple(None if s is None else s[:, :stop] for s in streams["k_streams"]),
        keys_turned=turned,
    )
    with torch.enable_grad():
        logits = plan.logits().masked_fill(~plan.visible(), float("-inf"))
        output = plan.values(logits.softmax(-1).nan_to_num())
        (gradient,) = torch.autograd.grad(output, q, scene.grad[:, :, rows].double())
    return output.detach(), gradient


def _gap(a: Tensor, b: Tensor) -> float:
    """The largest difference; infinite where something is not finite."""
    worst = float((a.double() - b).abs().max())
    return worst if worst == worst else float("inf")
