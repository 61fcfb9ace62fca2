"""Attention through plans. A backend sees only a `Plan`; it declares what it serves, and says why where it refuses."""

from typing import Protocol

import torch
from torch import Tensor

from lengthen.core import Layout, Needs, Plan, Refusal, Scheme, UsageError
from lengthen.core.errors import unknown

from .blocked import Blocked
from .dense import Dense
from .flex import Flex
from .native import Native
from .sdpa import SDPA


class Backend(Protocol):
    """A way to compute a plan."""

    name: str
    serves: Needs
    """The most that a score term may need."""
    value_terms: bool
    """Whether it can add value terms."""
    branches: bool
    """Whether it can merge branches."""

    def refusal(self, plan: Plan) -> str | None:
        """Why this plan cannot be served beyond what `serves` and `value_terms` say; None: it can."""

    def __call__(self, plan: Plan) -> Tensor:
        """[B, H, Q, D], in the type of `v`."""


BACKENDS: dict[str, Backend] = {b.name: b for b in (Native(), SDPA(), Flex(), Blocked(), Dense())}
ORDER = {"cpu": ("native", "sdpa", "blocked", "dense"), "cuda": ("sdpa", "flex", "blocked", "dense")}
"""By device: the first that does not refuse is chosen. Other devices follow the CPU."""


def refusal(backend: Backend, plan: Plan) -> str | None:
    """Why `backend` cannot serve `plan`, as a sentence; None where it can."""
    if plan.needs > backend.serves:
        who = next(type(t).__name__ for t in plan.terms if t.needs == plan.needs)
        return (
            f"{who} needs {plan.needs.name.lower()}, and the {backend.name} backend shows at most "
            f"{backend.serves.name.lower()}. Use the dense or the blocked backend."
        )
    if plan.value_terms and not backend.value_terms:
        who = type(plan.value_terms[0]).__name__
        return f"{who} adds to the values, which the {backend.name} backend cannot. Use the dense or the blocked backend."
    if plan.branches and not backend.branches:
        return f"The {backend.name} backend cannot merge {len(plan.branches)} branches. Use the dense or the blocked backend."
    return backend.refusal(plan)


def choose(plan: Plan, backend: str | None = None) -> Backend:
    """The named backend, or a Refusal with its reason, never a silent fallback; no name: the first of ORDER that serves."""
    if backend is not None:
        if backend not in BACKENDS:
            raise unknown("backend", backend, BACKENDS)
        why = refusal(BACKENDS[backend], plan)
        if why is not None:
            raise Refusal(why)
        return BACKENDS[backend]
    order = ORDER.get(plan.q.device.type, ORDER["cpu"])
    return next(b for b in map(BACKENDS.get, order) if refusal(b, plan) is None)


def attend(
    scheme: Scheme,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layout: Layout | None = None,
    *,
    backend: str | None = None,
    scale: float | None = None,
    q_streams: tuple[Tensor | None, ...] = (),
    k_streams: tuple[Tensor | None, ...] = (),
    keys_turned: bool = False,
) -> Tensor:
    """Attention of q [B, H, Q, D] over k, v [B, G, K, D] under a scheme -> [B, H, Q, D].

    Without `layout`, the queries are the last Q of K consecutive tokens. `scale` defaults to D^-1/2. Raises UsageError for
    shapes that do not fit.
    """
    _require_fitting(q, k, v)
    layout = layout if layout is not None else Layout.plain(q.shape[2], k.shape[2], q.device)
    if (q.shape[2], k.shape[2]) != (layout.q.tokens, layout.k.tokens):
        raise UsageError(
            f"The layout stands for {layout.q.tokens} queries and {layout.k.tokens} keys, got {q.shape[2]} and {k.shape[2]}."
        )
    if {len(layout.q.idx), len(layout.k.idx)} - {1, len(q)}:
        raise UsageError(f"The layout stands for {len(layout.q.idx)} and {len(layout.k.idx)} rows, got {len(q)}.")
    thin = scheme.pattern.step > 1 and layout.in_order and not scheme.branches
    streams = [s for s in (*q_streams, *k_streams) if s is not None]
    if thin and backend != "dense" and not streams:
        return _by_residue(scheme, q, k, v, layout, backend=backend, scale=scale, keys_turned=keys_turned)
    out = []
    for rows in scheme.blocks(layout):
        columns = _columns(scheme, layout, rows)
        whole = rows == slice(None)
        part = layout if whole else layout.part(rows, columns)
        plan = scheme.plan(
            q if whole else q[:, :, rows],
            k if whole else k[:, :, columns],
            v if whole else v[:, :, columns],
            part,
            scale=scale,
            q_streams=q_streams if whole else tuple(None if s is None else s[:, rows] for s in q_streams),
            k_streams=k_streams if whole else tuple(None if s is None else s[:, columns] for s in k_streams),
            keys_turned=keys_turned,
        )
        out.append(choose(plan, backend)(plan))
    return out[0] if len(out) == 1 else torch.cat(out, dim=2)


def _by_residue(scheme: Scheme, q: Tensor, k: Tensor, v: Tensor, layout: Layout, **how) -> Tensor:
    """Queries that share no key with others, each lot in order among its own keys."""
    step, thinned = scheme.pattern.step, scheme.with_pattern(scheme.pattern.thinned)
    out = q.new_empty(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for first in range(min(step, q.shape[2])):
        residue = (int(layout.q.idx[0, 0]) + first) % step
        keys = slice((residue - int(layout.k.idx[0, 0])) % step, None, step)
        rows = slice(first, None, step)
        out[:, :, rows] = attend(thinned, q[:, :, rows], k[:, :, keys], v[:, :, keys], layout.every(step, residue), **how)
    return out


def _require_fitting(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Refuses what some backend would stretch, read past, or fail on in words of its own."""
    got = f"got q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)}"
    if {q.dim(), k.dim(), v.dim()} != {4} or 0 in (*q.shape, *k.shape, *v.shape):
        raise UsageError(f"Attention takes [rows, heads, tokens, channels] with at least one of each, {got}.")
    if k.shape[:3] != v.shape[:3]:
        raise UsageError(f"Keys and values must have the same rows, heads and tokens, {got}.")
    if (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]):
        raise UsageError(f"Queries and keys must have the same rows and channels, {got}.")
    if not (q.is_floating_point() and k.is_floating_point() and v.is_floating_point()):
        raise UsageError(f"Attention takes real numbers, got {q.dtype}, {k.dtype} and {v.dtype}.")


def _columns(scheme: Scheme, layout: Layout, rows: slice) -> slice:
    """The keys that a block of queries can see at all."""
    if rows == slice(None) or not (layout.in_order and scheme.pattern.causal):
        return slice(0, layout.k.tokens)
    return slice(0, min(rows.stop + layout.order_shift, layout.k.tokens))
