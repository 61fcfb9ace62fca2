"""The figures of a comparison, interactive (Plotly)."""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.colors import qualitative

from lengthen.evaluate import CONTROLS, Comparison

COLOURS = [*qualitative.D3, *qualitative.Dark24]
DASHES = dict(zip(("none", *CONTROLS), ("solid", "dot", "dash"), strict=False))


def loss_by_length(found: Comparison, protocol: str) -> go.Figure:
    """Nats per token against the length read, with intervals; controls dotted and dashed, off until asked for."""
    figure = _figure("tokens per window", "nats per token", found, xaxis_type="log")
    for colour, method in zip(COLOURS, found.methods, strict=False):
        for control, dash in DASHES.items():
            cells = [c for n in found.lengths if (c := found.cell(method, n, protocol, control)) and c.reason is None]
            if not cells:
                continue
            above = [0 if c.loss.high is None else c.loss.high - c.loss.value for c in cells]
            below = [0 if c.loss.low is None else c.loss.value - c.loss.low for c in cells]
            figure.add_scatter(
                x=[c.length for c in cells],
                y=[c.loss.value for c in cells],
                name=method if control == "none" else f"{method} + {control}",
                visible=True if control == "none" else "legendonly",
                line={"color": colour, "dash": dash},
                error_y={"type": "data", "array": above, "arrayminus": below, "thickness": 1},
                customdata=[", ".join(f"{v:.3f}" for v in c.by_seed) for c in cells],
                hovertemplate="%{x} tokens: %{y:.3f} nats<br>seeds %{customdata}",
            )
    figure.update_xaxes(tickvals=found.lengths, ticktext=[str(n) for n in found.lengths])
    _mark_training_length(figure, found)
    return figure


def loss_by_position(found: Comparison) -> go.Figure:
    """Nats per token against the position in the longest window: where a method breaks."""
    figure = _figure("tokens of context", "nats per token", found, xaxis_type="log")
    for colour, method in zip(COLOURS, found.methods, strict=False):
        for control, dash in DASHES.items():
            curves = [r["evaluation"]["curves"].get(control) for r in found.runs(method) if "evaluation" in r]
            curves = [c for c in curves if c is not None]
            if not curves:
                continue
            edges, middle = curves[0]["edges"], _mean([c["nats"] for c in curves])
            figure.add_scatter(
                x=[(a + 1 + b) / 2 for a, b in pairwise(edges)],
                y=middle,
                name=method if control == "none" else f"{method} + {control}",
                visible=True if control == "none" else "legendonly",
                line={"color": colour, "dash": dash},
                hovertemplate="context %{x:.0f}: %{y:.3f} nats",
            )
    _mark_training_length(figure, found)
    return figure


def training_curves(found: Comparison, folder: Path) -> go.Figure:
    """Training loss against steps, a line per run."""
    figure = _figure("steps", "training loss, nats per token", found)
    for colour, method in zip(COLOURS, found.methods, strict=False):
        for n, run in enumerate(found.runs(method)):
            lines = _history(folder / run["name"] / "train.jsonl")
            figure.add_scatter(
                x=[r["step"] for r in lines],
                y=[r["loss"] for r in lines],
                name=method,
                legendgroup=method,
                showlegend=n == 0,
                line={"color": colour, "width": 1},
                hovertemplate=f"seed {run['spec']['seed']}, step %{{x}}: %{{y:.3f}}",
            )
    return figure


def speeds(found: Comparison) -> go.Figure:
    """Training tokens/s per method, a dot per run, the mean as a bar."""
    figure = _figure("", "training tokens/s", found)
    rates = {m: [x for r in found.runs(m) if (x := r["training"]["tokens_per_s"]) is not None] for m in found.methods}
    rates = {m: r for m, r in rates.items() if r}
    figure.add_bar(x=list(rates), y=[sum(r) / len(r) for r in rates.values()], name="mean", marker_color=COLOURS[0])
    dots = [(m, rate) for m, found_rates in rates.items() for rate in found_rates]
    figure.add_scatter(x=[m for m, _ in dots], y=[r for _, r in dots], mode="markers", name="runs", marker={"color": "black"})
    return figure


def _figure(x: str, y: str, found: Comparison, **layout: Any) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        template="plotly_white",
        xaxis_title=x,
        yaxis_title=y,
        height=480,
        margin={"t": 20, "r": 20},
        hovermode="closest",
        **layout,
    )
    return figure


def _mark_training_length(figure: go.Figure, found: Comparison) -> None:
    """A dotted line at L. On a logarithmic axis an annotation stands at the logarithm, a line at the value."""
    figure.add_vline(x=found.train_length, line_dash="dot", line_color="#999")
    figure.add_annotation(x=math.log10(found.train_length), y=1, yref="paper", text="L", showarrow=False, xshift=8)


def _mean(rows: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Column means; None where a run has no number."""
    return [None if None in column else sum(column) / len(column) for column in zip(*rows, strict=True)]


def _history(path: Path) -> list[Mapping[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
