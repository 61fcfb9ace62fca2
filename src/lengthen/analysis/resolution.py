"""Attention resolution: how sharply attention tells one distance from the next (Sun et al. 2022, arXiv:2212.10554, eq. 3).

A curve of scores `s` is float64 numpy, nats before the softmax: s[n] at distance n in tokens, -inf where no query sees that
distance (beyond a window, say). Distances count tokens in order, whatever positions the encoding gives them.
"""

from collections.abc import Iterable
from copy import deepcopy

import numpy as np
import torch
from torch import Tensor

from lengthen.core import Coordinates, Layout, Plan, Scheme, Shape, UsageError
from lengthen.core.errors import require_count, require_positive
from lengthen.models import Decoder

_BUDGET = 2**22
"""Scores held at once."""


def resolution(s: np.ndarray) -> float:
    """R(s) = sum_i e^s[i] (e^s[i] - e^s[i+1]) / (sum_i e^s[i])^2, i = 0..N, for `s` of N + 2 scores.

    With p = softmax(s[0..N]), R = sum p_i (p_i - p_(i+1)): at most 1, 0 where all distances score alike, negative where
    far keys score more. A distance that no query sees (-inf) has p = 0, so the edge of a pattern counts as a drop.
    """
    s = np.asarray(s, dtype=np.float64)
    if s.ndim != 1 or len(s) < 2:
        raise UsageError(f"Resolution needs a curve of at least 2 scores, got an array of shape {s.shape}.")
    if np.isnan(s).any() or np.isposinf(s).any() or np.isneginf(s[:-1]).all():
        raise UsageError("Resolution needs scores that are finite or -inf, at least one of them finite before the last.")
    e = np.exp(s - s[:-1].max())
    return float((e[:-1] * (e[:-1] - e[1:])).sum() / e[:-1].sum() ** 2)


def resolutions(s: np.ndarray, lengths: Iterable[int]) -> dict[int, float]:
    """R of each context length T in tokens: over distances 0..T-1, the score at T closing the last difference."""
    lengths = list(lengths)
    for length in lengths:
        require_count("resolutions", "length", length, "tokens")
        if length >= len(s):
            raise UsageError(
                f"The resolution at length {length} needs scores up to distance {length}; the curve ends at {len(s) - 1}."
            )
    return {length: resolution(s[: length + 1]) for length in lengths}


def analytic_scores(scheme: Scheme, shape: Shape, n: int, *, alignment: float = 1.0) -> np.ndarray:
    """The scores that a scheme itself gives to distances 0..n, whatever the content: float64 [n + 1].

    The mean over heads, and over all queries 0..n that see the distance, of `scheme.plan(...).logits()` (scaled by D^-1/2,
    terms and temperature included) where every token has the same content: q = alignment * 1 and k = 1 in each channel, the
    expected score of channels of unit variance whose correlation is `alignment`. RoPE gives
    2 alignment / sqrt(D) * sum_i cos(n theta_i), the paper's g[n] up to a factor.

    Where the scheme embeds positions, q and k are instead the embedding of a zero token, each token divided by its root mean
    square over the C channels, head h taking channels hD..hD+D-1 (identity projections): the mean over heads is
    sqrt(D) * alignment * (p_m . p_(m-n)) / C. A table that ends before n raises its LengthError.
    """
    require_count("analytic_scores", "n", n, "tokens")
    require_positive("analytic_scores", "alignment", alignment, "correlation")
    exact = deepcopy(scheme).to("cpu", torch.float64).eval()
    means = _DistanceMeans(n)
    with torch.no_grad():
        line = Coordinates.plain(n + 1)
        pos, own = exact.position(line.idx, torch.zeros_like(line.idx))
        layout = Layout(line.at(pos), line.at(pos))
        x = _content(exact, shape, own)
        heads = _heads(x, exact, shape)
        streams = tuple(term.stream(x, None) for term in exact.terms)
        for rows in exact.blocks(layout):
            means.add(
                exact.plan(
                    alignment * heads[:, :, rows],
                    heads,
                    heads,
                    layout.part(rows),
                    q_streams=tuple(None if s is None else s[:, rows] for s in streams),
                    k_streams=streams,
                )
            )
    return means.curve()


def _content(scheme: Scheme, shape: Shape, pos: Tensor) -> Tensor:
    """The same token at each position [1|B, T] -> float64 [1, T, C], each token of root mean square 1."""
    x = torch.zeros(1, pos.shape[1], shape.width, dtype=torch.float64)
    if scheme.embedding is None:
        return x + 1
    x = scheme.embedding(x, pos)
    return x / x.square().mean(-1, keepdim=True).sqrt().clamp_min(1e-300)


def _heads(x: Tensor, scheme: Scheme, shape: Shape) -> Tensor:
    """[1, T, C] -> [1, H, T, D]."""
    if scheme.embedding is None:
        return x.new_ones(1, shape.heads, x.shape[1], shape.head_size)
    if shape.heads * shape.head_size != shape.width:
        raise UsageError(
            f"The analytic scores of an embedding need heads times head size to be the width; got {shape.heads} x "
            f"{shape.head_size} and {shape.width}. Measure them on a model instead."
        )
    return x.unflatten(-1, (shape.heads, shape.head_size)).transpose(1, 2)


def measured_scores(
    model: Decoder, ids: Tensor, n: int, *, valid: Tensor | None = None, doc: Tensor | None = None, backend: str | None = None
) -> np.ndarray:
    """The scores that a trained model gives to distances 0..n on `ids`, int64 [B, T]: float64 [n + 1].

    The paper's estimate: the mean of e_(i, i-n), every term included, over the heads, the layers, the inputs, and the queries
    i that see distance n. Holds sums per distance and 2^22 scores at a time, beside what the forward itself needs.
    """
    require_count("measured_scores", "n", n, "tokens")
    if n >= ids.shape[1]:
        raise UsageError(f"Distance {n} needs inputs of at least {n + 1} tokens, got {ids.shape[1]}.")
    means, training, device = _DistanceMeans(n), model.training, model.embed.weight.device
    ids, valid, doc = (None if t is None else t.to(device) for t in (ids, valid, doc))

    def observed(scheme: Scheme) -> Scheme:
        twin = scheme.with_pattern(scheme.pattern)
        lower = twin.plan
        twin.plan = lambda *args, **how: means.add(lower(*args, **how))
        return twin

    try:
        with torch.no_grad():
            model.under(observed).eval().hidden(ids, valid=valid, doc=doc, backend=backend)
    finally:
        model.train(training)
    return means.curve()


class _DistanceMeans:
    """Running means of visible scores by distance 0..n, in float64."""

    def __init__(self, n: int):
        self.n = n
        self.total, self.count = torch.zeros(n + 1, dtype=torch.float64), torch.zeros(n + 1, dtype=torch.long)

    def add(self, plan: Plan) -> Plan:
        """Takes in all scores of a plan, some queries at a time; returns the plan."""
        batch, heads, queries, _ = plan.q.shape
        step = max(1, _BUDGET // (batch * heads * plan.k.shape[2]))
        for start in range(0, queries, step):
            self._add(plan.part(slice(start, min(start + step, queries))))
        return plan

    def _add(self, plan: Plan) -> None:
        scores = plan.logits().double().mean(1)
        distance = plan.layout.q.idx[:, :, None] - plan.layout.k.idx[:, None, :]
        shown = (plan.visible()[:, 0] & (distance >= 0) & (distance <= self.n)).expand_as(scores)
        distance, scores = distance.expand_as(scores)[shown].cpu(), scores[shown].cpu()
        self.total += torch.bincount(distance, weights=scores, minlength=self.n + 1)
        self.count += torch.bincount(distance, minlength=self.n + 1)

    def curve(self) -> np.ndarray:
        mean = self.total / self.count.clamp_min(1)
        return mean.masked_fill(self.count == 0, float("-inf")).numpy()
