"""The two contestants of a case: attention under its scheme, and PyTorch's own causal attention of the same shape."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from lengthen.backends import attend
from lengthen.core import Plan, Scheme

from .case import Case, Scene

Attention = Callable[[], list[Tensor]]
"""The outputs of every layer that shares a forward pass."""


def own_step(case: Case, scheme: Scheme, scene: Scene) -> Callable[[], list[Tensor]]:
    """Attention under the scheme: the output, then the gradients of queries, keys, values and learned weights."""
    # A cache holds the streams of old tokens; all that a decoder computes anew is one of them.
    held = scene.streams(scheme) if case.kind == "decode" else None
    turned = case.kind == "decode" and scheme.caches_turned_keys

    def attention() -> list[Tensor]:
        layout = scene.layout(scheme)
        streams = held if held is not None else scene.streams(scheme)
        how = {"backend": case.backend, "keys_turned": turned, **streams}
        return [attend(scheme, scene.q, scene.k, scene.v, layout, **how) for _ in range(case.layers)]

    return _step(case, scene, attention, [p for p in scheme.parameters() if p.requires_grad])


def peer_step(case: Case, scene: Scene) -> Callable[[], list[Tensor]]:
    """F.scaled_dot_product_attention, causal and without any encoding: the output, then the gradients of q, k and v."""
    how = {"is_causal": case.kind != "decode", "enable_gqa": case.heads != case.groups}

    def attention() -> list[Tensor]:
        return [F.scaled_dot_product_attention(scene.q, scene.k, scene.v, **how) for _ in range(case.layers)]

    return _step(case, scene, attention, [])


def lowered(case: Case, scheme: Scheme, scene: Scene) -> Plan:
    """The plan that a backend will see; of the last queries, where a rotation's reach cuts them."""
    layout, streams = scene.layout(scheme), scene.streams(scheme)
    rows = scheme.blocks(layout)[-1]
    cut = rows != slice(None)
    streams["q_streams"] = tuple(None if s is None else s[:, rows] for s in streams["q_streams"])
    turned = case.kind == "decode" and scheme.caches_turned_keys
    with torch.set_grad_enabled(case.backward):
        q, part = scene.q[:, :, rows], layout.part(rows) if cut else layout
        return scheme.plan(q, scene.k, scene.v, part, keys_turned=turned, **streams)


def _step(case: Case, scene: Scene, attention: Attention, weights: list[Tensor]) -> Callable[[], list[Tensor]]:
    leaves = [scene.q, scene.k, scene.v, *weights]

    @torch.no_grad()
    def forward() -> list[Tensor]:
        return attention()[-1:]

    def both() -> list[Tensor]:
        outs = attention()
        grads = torch.autograd.grad(outs, leaves, [scene.grad] * len(outs), allow_unused=True)
        return [outs[-1].detach(), *(g for g in grads if g is not None)]

    return both if case.backward else forward
