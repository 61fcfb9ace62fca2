"""What a GPU must show, in one run of a few minutes: are results right, is every distance bias as fast as none, is memory linear?

    python benchmarks/gpu.py OUT                              on a CUDA device, about 8 minutes at most
    python benchmarks/gpu.py OUT --device cpu --smoke         the same steps on tiny sizes, to test this script

Writes OUT/gpu.json after every step, so that an end at any moment leaves what is done, and OUT/gpu.md at the end. Every step
has its share of --minutes and says what it did not reach. Exit status: 0 where all that was measured meets its target, else 1.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from lengthen.backends import BACKENDS, attend, refusal
from lengthen.bench import AttentionBench, bench_attention
from lengthen.bench.case import Case
from lengthen.bench.columns import ATTENTION
from lengthen.bench.machine import facts
from lengthen.bench.memory import extra_bytes
from lengthen.bench.pairs import Ratio, interleave
from lengthen.bench.reports import markdown
from lengthen.bench.settings import synchronise
from lengthen.conformance.subject import Stage, lines, stage, subject
from lengthen.core import Coordinates, Layout, LengthenError, Needs, Scheme, Shape, methods
from lengthen.models import DecoderConfig, make_decoder
from lengthen.recipes.files import write_json

RIGHT = 2e-4
"""Largest error of float32 outputs and gradients against the dense backend in float64 on the CPU; gradients reach tens."""
SPEED = 1 / 0.9
"""Largest ratio to FlashAttention's causal time: 90 % of its speed."""
GROWTH = 1.2
"""Most by which the memory per token may grow from the shortest length to the longest."""
VERDICTS = {True: "met", False: "NOT met", None: "not judged"}
"""Speed and compilation are judged on a GPU only."""


@dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    heads: int = 16
    batch: int = 2
    length: int = 8192
    window: int = 16384
    dtype: str = "bfloat16"
    curve: tuple[int, ...] = (4096, 8192, 16384, 32768, 65536)
    compiled: tuple[int, ...] = (1000, 1024, 2048, 3000, 4096, 8192)
    methods: tuple[str, ...] | None = None
    """None: every registered one."""


SMOKE = Sizes(2, 1, 64, 128, "float32", (64, 128), (64, 100), ("alibi", "rope", "window"))


class Clock:
    """Seconds that are left of a share."""

    def __init__(self, seconds: float):
        self.end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self.end - time.monotonic()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes")
    parser.add_argument("--minutes", type=float, default=7.0)
    asked = parser.parse_args()
    if asked.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("there is no CUDA device here; --device cpu --smoke tests the script")
    sizes, result = SMOKE if asked.smoke else Sizes(), {"facts": facts(asked.device, smoke=asked.smoke), "steps": {}}
    for name, (step, share) in STEPS.items():
        began = time.monotonic()
        try:
            found = step(sizes, asked.device, Clock(60 * asked.minutes * share))
        except (LengthenError, RuntimeError) as error:
            found = {"met": False, "reason": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
        result["steps"][name] = {**found, "seconds": round(time.monotonic() - began, 1)}
        write_json(asked.out / "gpu.json", result)
        print(f"{name}: {VERDICTS[found['met']]} in {result['steps'][name]['seconds']} s", flush=True)
    (asked.out / "gpu.md").write_text(page(result))
    return 1 if any(step["met"] is False for step in result["steps"].values()) else 0


def right(sizes: Sizes, device: str, clock: Clock) -> dict[str, Any]:
    """Outputs and gradients of every method on every backend that serves it, plain and padded, whole and as the last query."""
    names, rows = methods() if sizes.methods is None else sizes.methods, []
    left_out = []
    for name in names:
        for shape in ("plain", "padded"):
            for queries in (37, 1):
                if clock.left < 0:
                    left_out.append(f"{name} {shape} {queries}")
                else:
                    rows += compared(name, shape, queries, device)
    worst = max((r["error"] for r in rows), default=float("inf"))
    return {"met": worst <= RIGHT and not left_out, "target": RIGHT, "worst": worst, "rows": rows, "left_out": left_out}


def compared(name: str, shape: str, queries: int, device: str) -> Iterator[dict[str, Any]]:
    """A row per backend: the largest error of the output and of the gradients of q, k and v."""
    about = subject(name, {}, 0)
    scheme = about.scheme()
    scene = stage(about, scheme, lines(37)[shape], queries)
    exact = gradients(scheme, scene, "dense")
    scheme, there = scheme.float().to(device), moved(scene, device)
    for backend in BACKENDS:
        if refusal(BACKENDS[backend], there.plan(scheme)) is None:
            found = gradients(scheme, there, backend)
            error = max(float((a.double().cpu() - b).abs().max()) for a, b in zip(found, exact, strict=True))
            yield {"method": name, "rows": shape, "queries": queries, "backend": backend, "error": error}


def moved(scene: Stage, device: str) -> Stage:
    """The scene in float32 on a device."""
    line = lambda c: Coordinates(*(None if t is None else t.to(device) for t in (c.idx, c.pos, c.doc, c.valid)))
    tensors = (t.float().to(device).requires_grad_() for t in scene.leaves)
    return Stage(*tensors, Layout(line(scene.layout.q), line(scene.layout.k)))


def gradients(scheme: Scheme, scene: Stage, backend: str) -> list[torch.Tensor]:
    """The output and the gradients of q, k and v of its sum of squares."""
    scene = scene.leaf(True)
    out = BACKENDS[backend](scene.plan(scheme))
    return [out.detach(), *torch.autograd.grad(out.square().sum(), [scene.q, scene.k, scene.v])]


def decoding(sizes: Sizes, device: str, clock: Clock) -> dict[str, Any]:
    """A model that reads from its cache in chunks gives the logits of the whole text, in float32."""
    config, rows = DecoderConfig(vocab=64, layers=2, heads=4, groups=2, width=64), []
    ids = torch.randint(64, (2, 90), generator=torch.Generator().manual_seed(0)).to(device)
    for name in ("alibi", "t5", "rope", "xpos", "rope+window:tokens=16", "fox"):
        model = make_decoder(config, name, 64).to(device).eval()
        with torch.no_grad():
            whole, cache = model(ids), model.new_cache()
            parts = [model(chunk, cache=cache) for chunk in ids.split((40, 1, 7, 1, 41), dim=1)]
        rows.append({"method": name, "error": float((torch.cat(parts, dim=1) - whole).abs().max())})
    worst = max(r["error"] for r in rows)
    return {"met": worst <= RIGHT, "target": RIGHT, "worst": worst, "rows": rows}


def distance_biases(names: tuple[str, ...] | None) -> tuple[str, ...]:
    """Registered methods that add a score of the distance, causal by default."""
    built = {name: m.build(Shape()) for name, m in methods().items() if names is None or name in names}
    return tuple(n for n, s in built.items() if len(s.terms) and s.needs == Needs.DISTANCE and s.pattern.causal)


def speed(sizes: Sizes, device: str, clock: Clock) -> dict[str, Any]:
    """Every distance bias beside causal attention without one, forward, backward and with its gradient; a window beside both."""
    shared = {"dtypes": (sizes.dtype,), "batch": sizes.batch, "heads": sizes.heads, "device": device, "repeats": 15}
    biases = AttentionBench(
        distance_biases(sizes.methods),
        (sizes.length,),
        passes=("forward", "backward", "learned"),
        memory=False,
        budget=0.7 * clock.left,
        **shared,
    )
    window = AttentionBench(
        ("window:tokens=512",), (sizes.window,), passes=("forward", "backward"), memory=False, budget=0.2 * clock.left, **shared
    )
    rows = [asdict(r) for bench in (biases, window) for r in bench_attention(bench)]
    measured = [r["ratio"] for r in rows if r["ratio"] is not None and not r["method"].startswith("window")]
    refused = [r for r in rows if r["ratio"] is None and "no weights to learn" not in r["reason"]]
    worst = max(measured, default=float("inf"))
    return {
        "met": worst <= SPEED and not refused if on_gpu(device) else None,
        "target": SPEED,
        "worst": worst,
        "default_over_flash": flash(sizes, device),
        "rows": rows,
    }


def flash(sizes: Sizes, device: str) -> float | None:
    """Time of SDPA as PyTorch dispatches it, which the ratios are to, over that of FlashAttention by name; None on a CPU."""
    if not on_gpu(device):
        return None
    scene = Case(
        "nope", None, sizes.dtype, sizes.length, "forward", sizes.batch, sizes.heads, sizes.heads, device=device
    ).scene()
    stock = lambda: F.scaled_dot_product_attention(scene.q, scene.k, scene.v, is_causal=True)

    def named() -> None:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            stock()

    times = interleave({"stock": stock, "named": named}, rounds=15, wait=synchronise(device))
    return Ratio.of(times["stock"], times["named"]).ratio


def memory(sizes: Sizes, device: str, clock: Clock) -> dict[str, Any]:
    """Peak bytes beyond inputs and outputs against length, forward and backward: linear where bytes per token stay."""
    rows, left_out = [], []
    for method, kind in (("alibi", "backward"), ("t5", "learned"), ("rope+window:tokens=512", "backward")):
        for length in sizes.curve:
            if clock.left < 0:
                left_out.append(f"{method} {length}")
                continue
            case = Case(method, None, sizes.dtype, length, kind, 1, sizes.heads, sizes.heads, device=device)
            extra = extra_bytes(case)
            rows.append({"method": method, "kind": kind, "length": length, "extra_bytes": extra, "per_token": extra / length})
    growth = max((growth_of([r for r in rows if r["method"] == m]) for m in {r["method"] for r in rows}), default=float("inf"))
    return {"met": growth <= GROWTH and not left_out, "target": GROWTH, "worst": growth, "rows": rows, "left_out": left_out}


def growth_of(rows: list[dict[str, Any]]) -> float:
    """Bytes per token at the longest length over those at the shortest; a megabyte is the floor of what counts."""
    first, last = rows[0], rows[-1]
    return last["per_token"] / max(first["per_token"], 2**20 / first["length"])


def compiles(sizes: Sizes, device: str, clock: Clock) -> dict[str, Any]:
    """How many graphs FlexAttention is compiled to over lengths, forward and backward: one."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    counts = []
    kind = "backward" if on_gpu(device) else "forward"
    for length in sizes.compiled:
        case = Case("alibi", "flex", sizes.dtype, length, kind, 1, 4, 4, device=device)
        scheme, scene = case.scheme(), case.scene()
        with torch.set_grad_enabled(case.backward):
            out = attend(scheme, scene.q, scene.k, scene.v, scene.layout(scheme), backend="flex")
        if case.backward:
            torch.autograd.grad(out, (scene.q, scene.k, scene.v), scene.grad)
        counts.append({"length": length, "graphs": counters["stats"]["unique_graphs"]})
    worst = counts[-1]["graphs"]
    return {"met": worst == 1 if on_gpu(device) else None, "target": 1, "worst": worst, "rows": counts}


def on_gpu(device: str) -> bool:
    """Whether this is the real thing."""
    return torch.device(device).type != "cpu"


Step = Callable[[Sizes, str, Clock], dict[str, Any]]
STEPS: dict[str, tuple[Step, float]] = {
    "decoding": (decoding, 0.05),
    "compiles": (compiles, 0.1),
    "speed": (speed, 0.4),
    "memory": (memory, 0.15),
    "right": (right, 0.3),
}
"""By name: what it does, and its share of the minutes. What takes long to compile comes last."""


def page(result: dict[str, Any]) -> str:
    """Markdown: each step with its target, its worst number and its rows."""
    parts = ["# GPU\n"]
    for name, step in result["steps"].items():
        said = step.get("reason", f"worst {step.get('worst')}, target {step.get('target')}")
        parts.append(f"## {name}: {VERDICTS[step['met']]}\n\n{STEPS[name][0].__doc__} {said}. {step['seconds']} s.\n")
        rows = step.get("rows", [])
        if name == "speed" and rows:
            parts.append(
                f"FlashAttention by name takes 1/{step['default_over_flash']} of the peer.\n\n{markdown(ATTENTION.columns, rows)}\n"
            )
        elif rows:
            columns = tuple((key, key, ".3g" if isinstance(value, float) else "") for key, value in rows[0].items())
            parts.append(markdown(columns, rows) + "\n")
        if step.get("left_out"):
            parts.append(f"Not reached: {', '.join(step['left_out'])}.\n")
    return "\n".join([*parts, *(f"- {k}: {v}" for k, v in result["facts"].items() if v is not None)]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
