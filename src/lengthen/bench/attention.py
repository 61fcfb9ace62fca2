"""Attention under any encoding beside PyTorch's own causal attention: time, memory and error, case by case."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch

from lengthen.backends import choose
from lengthen.core import LengthenError, Scheme, UsageError

from .accuracy import errors
from .case import Case
from .ideal import share
from .memory import Gauge, extra_bytes
from .pairs import Clock, Ratio, interleave
from .settings import CLOCKS, AttentionBench, synchronise, threads
from .steps import lowered, own_step, peer_step


@dataclass(frozen=True)
class Row:
    """What one case gave; numbers are None where it was refused."""

    method: str
    backend: str | None
    """The one that served it; where it was refused, the one that was asked for."""
    dtype: str
    length: int
    kind: str
    reason: str | None = None
    """Why there are no numbers, a sentence."""
    seconds: float | None = None
    """Median per attention."""
    peer_seconds: float | None = None
    """Median of causal SDPA of the same shape, interleaved."""
    ratio: float | None = None
    """Median over rounds of the one over the other."""
    ratio_low: float | None = None
    """Lower quartile over rounds."""
    ratio_high: float | None = None
    """Upper quartile."""
    rounds: int = 0
    ideal: float | None = None
    """Share of causal attention's scores that the pattern shows."""
    over_ideal: float | None = None
    """ratio / ideal."""
    extra_bytes: int | None = None
    """Peak beyond inputs and outputs."""
    error: float | None = None
    """Largest absolute error of sampled outputs against float64."""
    peer_error: float | None = None
    """That of causal SDPA, against its own float64."""
    gradient_error: float | None = None
    """Largest absolute error of sampled query gradients."""
    peer_gradient_error: float | None = None


def bench_attention(
    bench: AttentionBench, progress: Callable[[int, int, str], None] = lambda done, total, note: None
) -> Iterator[Row]:
    """Yields a row per case as soon as it is measured. `progress(done, total, case)` is called before each.

    The budget is shared evenly among the rows that are left, so that what one does not need serves the others.
    """
    bench.require_room()
    cases, clock = bench.cases(), CLOCKS[bench.clock]
    with threads(bench.threads) as count, _gauge(bench, count) as gauge:
        left = bench.budget
        for n, case in enumerate(cases):
            progress(n, len(cases), f"{case.method} {case.dtype} {case.length} {case.kind}")
            began = perf_counter()
            yield _row(case, bench.repeats, left / (len(cases) - n), clock, gauge)
            left -= perf_counter() - began
    progress(len(cases), len(cases), "")


def _row(case: Case, repeats: int, budget: float, clock: Clock, gauge: Callable[[Case], int] | None) -> Row:
    """Measures one case; what refuses or fails becomes the reason."""
    try:
        return _measured(case, repeats, budget, clock, gauge)
    except (LengthenError, RuntimeError) as error:
        return Row(case.method, case.backend, case.dtype, case.length, case.kind, reason=str(error).split("\n")[0])


def _measured(case: Case, repeats: int, budget: float, clock: Clock, gauge: Callable[[Case], int] | None) -> Row:
    scheme, scene = case.scheme(), case.scene()
    if case.kind == "learned" and not any(p.requires_grad for p in scheme.parameters()):
        raise UsageError(f"{case.method} has no weights to learn.")
    plan = lowered(case, scheme, scene)
    backend = choose(plan, case.backend).name
    ideal = share(plan.pattern, scene.layout(scheme))
    own, peer = own_step(case, scheme, scene), peer_step(case, scene)
    turned = case.kind == "decode" and scheme.caches_turned_keys
    own_error = errors(scheme, scene, own(), case.backward, turned, case.layers)
    peer_error = errors(Scheme(), scene, peer(), case.backward, layers=case.layers)
    times = interleave({"own": own, "peer": peer}, rounds=repeats, budget=budget, clock=clock, wait=synchronise(case.device))
    ratio = Ratio.of(times["own"], times["peer"])
    return Row(
        case.method,
        backend,
        case.dtype,
        case.length,
        case.kind,
        seconds=ratio.seconds / case.layers,
        peer_seconds=ratio.peer_seconds / case.layers,
        ratio=ratio.ratio,
        ratio_low=ratio.low,
        ratio_high=ratio.high,
        rounds=ratio.rounds,
        ideal=ideal,
        over_ideal=ratio.ratio / ideal,
        extra_bytes=None if gauge is None else gauge(case),
        error=own_error.output,
        peer_error=peer_error.output,
        gradient_error=own_error.gradient,
        peer_gradient_error=peer_error.gradient,
    )


@contextmanager
def _gauge(bench: AttentionBench, count: int) -> Iterator[Callable[[Case], int] | None]:
    """What measures memory: a process beside this one, or on CUDA this one."""
    if not bench.memory:
        yield None
    elif torch.device(bench.device).type == "cuda":
        yield extra_bytes
    else:
        with Gauge(count) as gauge:
            yield gauge.extra_bytes
