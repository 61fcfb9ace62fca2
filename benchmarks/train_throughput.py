"""Training throughput beside x-transformers: same sizes, length, batch, precision and encoding, in turn in one process.

    python benchmarks/train_throughput.py [--rounds 30] [--methods rope alibi] [--json] [--report]

One step is forward, cross entropy, backward and a fused AdamW update. Steps of all contestants alternate, so that what else
the machine does strikes them alike. x-transformers is measured with its default attention and with `attn_flash=True`; the
ratio is to the faster of the two.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from x_transformers import Decoder as XDecoder
from x_transformers import TransformerWrapper

from dated import write_report
from lengthen.evaluate.provenance import provenance
from lengthen.models import make_decoder, preset

PEER_ENCODINGS = {
    # The peer turns half of each head unless told otherwise; lengthen turns all of it.
    "rope": lambda head: {"rotary_pos_emb": True, "rotary_emb_dim": head},
    "alibi": lambda head: {"alibi_pos_bias": True},
    "t5": lambda head: {"rel_pos_bias": True},
    "nope": lambda head: {},
}
"""What the same encoding is called in x-transformers."""


def peer(config, method: str, length: int, flash: bool) -> nn.Module:
    """x-transformers with the sizes of `config`: RMSNorm, SwiGLU, no biases, tied embeddings, no dropout."""
    layers = XDecoder(
        dim=config.width,
        depth=config.layers,
        heads=config.heads,
        attn_dim_head=config.head_channels,
        attn_flash=flash,
        use_rmsnorm=True,
        ff_glu=True,
        ff_swish=True,
        ff_no_bias=True,
        ff_mult=config.hidden_channels / config.width,
        verbose=False,
        **PEER_ENCODINGS[method](config.head_channels),
    )
    return TransformerWrapper(
        num_tokens=config.vocab, max_seq_len=length, attn_layers=layers, use_abs_pos_emb=False, tie_embedding=True
    )


def stepper(model: nn.Module, ids: Tensor, targets: Tensor) -> Callable[[], None]:
    """One training step of `model`."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def measure(steps: dict[str, Callable[[], None]], rounds: int, warm: int = 3) -> dict[str, dict[str, float]]:
    """Median seconds per step, by the wall and of processor time, over alternating rounds."""
    wall, cpu = ({name: [] for name in steps} for _ in range(2))
    for n in range(rounds + warm):
        for name, step in steps.items():
            began, spent = time.perf_counter(), time.process_time()
            step()
            if n >= warm:
                wall[name].append(time.perf_counter() - began)
                cpu[name].append(time.process_time() - spent)
    return {name: {"wall_s": statistics.median(wall[name]), "cpu_s": statistics.median(cpu[name])} for name in steps}


def compare(method: str, size: str, length: int, batch: int, rounds: int) -> list[dict]:
    """One row per contestant, with its ratio of tokens per second to the faster peer."""
    config = preset(size)
    data = torch.Generator().manual_seed(0)
    ids = torch.randint(config.vocab, (batch, length + 1), generator=data)
    torch.manual_seed(0)
    models = {
        "lengthen": make_decoder(config, method, train_length=length),
        "x-transformers": peer(config, method, length, flash=False),
        "x-transformers, flash": peer(config, method, length, flash=True),
    }
    times = measure({name: stepper(m.train(), ids[:, :-1], ids[:, 1:]) for name, m in models.items()}, rounds)
    rows = []
    for name, seconds in times.items():
        parameters = sum(p.numel() for p in models[name].parameters())
        rows.append(
            {"method": method, "model": name, "parameters": parameters, "tokens_per_s": batch * length / seconds["wall_s"]}
            | seconds
        )
    for clock in ("wall_s", "cpu_s"):
        best = min(seconds[clock] for name, seconds in times.items() if name != "lengthen")
        for row in rows:
            row[f"speed_{clock[:-2]}"] = best / row[clock]
    return rows


def table(rows: list[dict]) -> str:
    """Markdown."""
    head = "| encoding | model | parameters | tokens/s | ms per step | speed (wall) | speed (processor time) |\n|---|---|---|---|---|---|---|"
    line = "| {method} | {model} | {parameters} | {tokens_per_s:.0f} | {ms:.2f} | {speed_wall:.2f} | {speed_cpu:.2f} |"
    return "\n".join([head, *(line.format(**r, ms=1e3 * r["wall_s"]) for r in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--methods", nargs="+", default=["rope", "alibi"], choices=sorted(PEER_ENCODINGS))
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--length", type=int, default=128, help="tokens per sequence")
    parser.add_argument("--batch", type=int, default=8, help="sequences per step")
    parser.add_argument("--rounds", type=int, default=30, help="measured steps of each contestant")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--report", action="store_true", help="write a dated report beside this script")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = [r for m in args.methods for r in compare(m, args.preset, args.length, args.batch, args.rounds)]
    facts = provenance(preset=args.preset, length=args.length, batch=args.batch, rounds=args.rounds, precision="fp32")
    print(json.dumps({"facts": facts, "rows": rows}, indent=1) if args.json else table(rows))
    if args.report:
        write_report(
            "train-throughput",
            "Training throughput\n\nSpeed is tokens per second relative to the faster x-transformers.",
            table(rows),
            facts,
        )


if __name__ == "__main__":
    main()
