"""Training tokens per second: our decoder beside itself with plain attention, and beside x-transformers'."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthen.models import make_decoder

from .models import SIZES, ModelBench, ModelRow, beside
from .pairs import Step
from .peers import plain_causal, x_transformers
from .settings import CLOCKS


def training_rows(bench: ModelBench, method: str, dtype: str, budget: float) -> Iterator[ModelRow]:
    """Rows of one encoding; a step is forward, cross entropy, backward and a fused AdamW update."""
    config = SIZES[bench.size]
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(config.vocab, (bench.batch, bench.length + 1), generator=generator).to(bench.device)
    step = lambda model: stepper(model.to(bench.device), ids, dtype)
    peers = {
        "plain causal": lambda: step(plain_causal(config, bench.length)),
        "x-transformers": lambda: step(x_transformers(config, method, bench.length, flash=False)),
        "x-transformers, flash": lambda: step(x_transformers(config, method, bench.length, flash=True)),
    }
    yield from beside(
        ModelRow("training", method, dtype, ""),
        step(make_decoder(config, method, bench.length)),
        peers,
        bench.batch * bench.length,
        rounds=bench.rounds,
        budget=budget,
        clock=CLOCKS[bench.clock],
        device=bench.device,
    )


def stepper(model: nn.Module, ids: Tensor, dtype: str) -> Step:
    """One training step of `model` on int64 [B, T + 1]; bfloat16 is autocast."""
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-4, fused=True)

    def step() -> Tensor:
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=dtype == "bfloat16"):
            logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step
