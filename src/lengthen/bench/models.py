"""Whole models beside named peers: what to measure, and what a row holds."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from time import perf_counter

import torch

from lengthen.core import Refusal, UsageError, parse
from lengthen.core.errors import require_count, require_positive, unknown
from lengthen.models import PRESETS, DecoderConfig

from .capacity import require_bytes
from .pairs import Clock, Ratio, Step, interleave
from .peers import SMOLLM2, TEN_MILLION
from .settings import CLOCKS, require_device, synchronise, threads

SIZES: dict[str, DecoderConfig] = {"10m": TEN_MILLION, "smollm2": SMOLLM2, **PRESETS}
"""What can be measured, by name."""
TASKS = ("training", "inference")
_PEERS = 3
"""Of training; each holds its weights, their gradients and two moments."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""Training in bfloat16 is autocast, with weights in float32; inference has its weights in bfloat16."""


@dataclass(frozen=True)
class ModelBench:
    """What to measure of whole models. Raises UsageError for names, sizes or devices that are not there."""

    tasks: tuple[str, ...] = TASKS
    methods: tuple[str, ...] = ("nope", "alibi", "t5", "rope")
    """Encodings to train with; inference has the rotary one of its peer."""
    size: str = "10m"
    """Of the model that is trained, a name of SIZES."""
    inference_size: str = "smollm2"
    length: int = 1024
    """Tokens per training sequence, and of the prompt."""
    batch: int = 1
    """Sequences per training step."""
    new_tokens: int = 16
    """Tokens that a round of decoding adds, one at a time."""
    dtypes: tuple[str, ...] = ("float32",)
    rounds: int = 7
    """Most rounds, each with one time of every contestant."""
    budget: float = 600.0
    """Seconds for everything together; three rounds of each are made whatever they take."""
    threads: int | None = None
    clock: str = "wall"
    device: str = "cpu"

    def __post_init__(self):
        for kind, given, known in (
            ("task", self.tasks, TASKS),
            ("size", (self.size, self.inference_size), SIZES),
            ("dtype", self.dtypes, DTYPES),
            ("clock", (self.clock,), CLOCKS),
        ):
            for name in given:
                if name not in known:
                    raise unknown(kind, name, known)
        for name in ("length", "batch", "new_tokens", "rounds", "threads"):
            if getattr(self, name) is not None:
                require_count("bench model", name, getattr(self, name), name.replace("_", " "))
        require_positive("bench model", "budget", self.budget, "seconds")
        for spec in self.methods:
            parse(spec)
        if "training" in self.tasks and not self.methods:
            raise UsageError("Training needs at least one method. Give --methods alibi, say, or --tasks inference.")
        require_device(self.device)

    def require_room(self) -> None:
        """Refuses models that cannot fit in memory: UsageError with both numbers."""
        copies = {"training": (self.size, 16 * (1 + _PEERS)), "inference": (self.inference_size, 4 * 2)}
        for task in self.tasks:
            size, bytes_per_weight = copies[task]
            tokens = self.length * (self.batch if task == "training" else 1)
            need = weights(SIZES[size]) * bytes_per_weight + tokens * activations(SIZES[size], task == "training")
            require_bytes(f"{task.capitalize()} of {size} with {tokens} tokens at once", need, self.device)


def weights(config: DecoderConfig) -> int:
    """Parameters of a decoder, without norms and encodings."""
    heads = 2 * config.heads + 2 * config.kv_heads
    layer = config.width * (config.head_channels * heads + 3 * config.hidden_channels)
    return config.vocab * config.width * (1 if config.tied else 2) + config.layers * layer


def activations(config: DecoderConfig, training: bool) -> int:
    """Bytes per token in float32, about: what a backward pass reads again; in inference, one layer and the cache."""
    heads = config.head_channels * (2 * config.heads + 4 * config.kv_heads)
    layer = 8 * config.width + 4 * config.hidden_channels + heads
    cache = 2 * config.layers * config.kv_heads * config.head_channels
    return 4 * (config.layers * layer + 4 * config.vocab if training else layer + 2 * cache)


@dataclass(frozen=True)
class ModelRow:
    """Ours beside one peer; numbers are None where the peer is not to be had."""

    task: str
    """'training', 'prefill' or 'decode'."""
    method: str
    dtype: str
    peer: str
    reason: str | None = None
    """Why there are no numbers, a sentence."""
    tokens_per_s: float | None = None
    """Ours."""
    peer_tokens_per_s: float | None = None
    speed: float | None = None
    """Median over rounds of ours over the peer's."""
    speed_low: float | None = None
    """Lower quartile."""
    speed_high: float | None = None
    """Upper quartile."""
    rounds: int = 0


Makers = Mapping[str, Callable[[], Step]]
"""Peers by name, made when they are needed; one that cannot be made raises Refusal."""


def beside(
    blank: ModelRow, own: Step, peers: Makers, tokens: int, *, rounds: int, budget: float, clock: Clock, device: str
) -> Iterator[ModelRow]:
    """One row per peer: all contestants in turn, `tokens` in every step. `blank` holds what the rows share."""
    steps, refused = {"": own}, {}
    for name, make in peers.items():
        try:
            steps[name] = make()
        except Refusal as why:
            refused[name] = str(why)
    times = interleave(steps, rounds=rounds, budget=budget, clock=clock, wait=synchronise(device))
    for name in peers:
        if name in refused:
            yield replace(blank, peer=name, reason=refused[name])
            continue
        found = Ratio.of(times[name], times[""])
        yield replace(
            blank,
            peer=name,
            tokens_per_s=tokens / found.peer_seconds,
            peer_tokens_per_s=tokens / found.seconds,
            speed=found.ratio,
            speed_low=found.low,
            speed_high=found.high,
            rounds=found.rounds,
        )


Progress = Callable[[int, int, str], None]


def bench_model(bench: ModelBench, progress: Progress = lambda done, total, note: None) -> Iterator[ModelRow]:
    """Yields rows as soon as they are measured. `progress(done, total, what)` is called before each comparison."""
    from .inference import inference_rows
    from .training import training_rows

    bench.require_room()
    jobs = [(training_rows, m, d) for m, d in product(bench.methods, bench.dtypes) if "training" in bench.tasks]
    jobs += [(inference_rows, None, d) for d in bench.dtypes if "inference" in bench.tasks]
    left = bench.budget
    with threads(bench.threads):
        for n, (rows, method, dtype) in enumerate(jobs):
            progress(n, len(jobs), f"{'training ' + method if method is not None else 'inference'} {dtype}")
            began = perf_counter()
            yield from rows(bench, method, dtype, left / (len(jobs) - n))
            left -= perf_counter() - began
    progress(len(jobs), len(jobs), "")
