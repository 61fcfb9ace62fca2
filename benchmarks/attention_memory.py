"""Peak memory and time of attention, forward and backward, against length: is it linear?

    python benchmarks/attention_memory.py [--lengths 1024 2048 ... 32768] [--json] [--report]

Each point is a fresh process: its peak resident memory minus that of the same process before attention, at 8 heads of 64
channels in float32, for ALiBi (a fixed score per distance) and T5's bias (a learned one, with its gradient).
"""

import argparse
import json
import resource
import subprocess
import sys
import time

from dated import write_report

LENGTHS = [1024, 2048, 4096, 8192, 16384, 32768]
HEADS, SIZE = 8, 64


def peak_mib() -> float:
    """Highest resident memory of this process so far."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def point(method: str, backend: str | None, length: int, threads: int) -> dict:
    """One measurement, in this process."""
    import torch

    from lengthen.backends import attend
    from lengthen.core import Shape, build

    torch.set_num_threads(threads)
    scheme = build(method, Shape(heads=HEADS, groups=HEADS, head_size=SIZE, width=HEADS * SIZE))

    def run(tokens: int) -> None:
        q, k, v = (torch.randn(1, HEADS, tokens, SIZE).requires_grad_() for _ in range(3))
        attend(scheme, q, k, v, backend=backend).sum().backward()

    run(64)
    before, began = peak_mib(), time.perf_counter()
    run(length)
    inputs = 7 * HEADS * SIZE * length * 4 / (1 << 20)  # q, k, v, their gradients and the output
    return {
        "method": method,
        "backend": backend if backend is not None else "chosen",
        "length": length,
        "peak_mib": round(peak_mib() - before, 1),
        "inputs_and_gradients_mib": round(inputs, 1),
        "one_plane_mib": HEADS * length**2 * 4 / (1 << 20),
        "seconds": round(time.perf_counter() - began, 2),
    }


def fresh(method: str, backend: str | None, length: int, threads: int) -> dict:
    """`point` in a process of its own."""
    here = [sys.executable, __file__, "--point", method, str(length), "--threads", str(threads)]
    done = subprocess.run([*here, *(["--backend", backend] if backend else [])], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def table(rows: list[dict]) -> str:
    """Markdown; the last column is what one [H, L, L] tensor alone would take."""
    head = (
        "| encoding | backend | length | peak MiB | of it q, k, v, output, gradients | MiB per 1k tokens | one plane MiB | s |"
    )
    lines = [
        f"| {r['method']} | {r['backend']} | {r['length']} | {r['peak_mib']:.0f} | {r['inputs_and_gradients_mib']:.0f} | "
        f"{1024 * r['peak_mib'] / r['length']:.1f} | {r['one_plane_mib']:.0f} | {r['seconds']:.1f} |"
        for r in rows
    ]
    return "\n".join([head, "|" + "---|" * 8, *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--methods", nargs="+", default=["alibi", "t5"])
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--backend", help="default: the one that attention chooses")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--report", action="store_true", help="write a dated report beside this script")
    parser.add_argument("--point", nargs=2, metavar=("METHOD", "LENGTH"), help="measure one point in this process, as JSON")
    args = parser.parse_args()
    if args.point:
        print(json.dumps(point(args.point[0], args.backend, int(args.point[1]), args.threads)))
        return
    rows = [fresh(m, args.backend, n, args.threads) for m in args.methods for n in args.lengths]
    from lengthen.evaluate.provenance import provenance

    facts = provenance(heads=HEADS, head_size=SIZE, batch=1, precision="fp32")
    print(json.dumps({"facts": facts, "rows": rows}, indent=1) if args.json else table(rows))
    if args.report:
        write_report("attention-memory", "Memory of attention, forward and backward", table(rows), facts)


if __name__ == "__main__":
    main()
