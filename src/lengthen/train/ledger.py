"""What a run remembers besides weights: losses, rates, and whether it is still healthy. Plain numbers, kept as JSON."""

import math
import statistics
from dataclasses import dataclass, field

from .config import TrainConfig


@dataclass
class Ledger:
    """The books of one run; a checkpoint holds all of them, so that a resumed run goes on in mid-line."""

    step: int = 0
    """Steps done."""
    seconds: float = 0.0
    """Wall time of the run up to here, over all its sittings."""
    first_loss: float | None = None
    """Of step 1, nats per token."""
    diverging: int = 0
    """Steps in a row whose loss was above the limit."""
    losses: list[float] = field(default_factory=list)
    """Of the steps since the last line of train.jsonl, nats per token."""
    grad_norms: list[float] = field(default_factory=list)
    """Of the same steps, before clipping."""
    busy: float = 0.0
    """Seconds spent in those steps."""
    final_loss: float = math.nan
    """Mean of the last line."""
    rates: list[float] = field(default_factory=list)
    """Tokens per second of each line."""

    def limit(self, config: TrainConfig, vocab: int) -> float:
        """The loss above which a step counts as diverging."""
        return config.diverged_ratio * max(self.first_loss, math.log(vocab))

    def record(self, loss: float, grad_norm: float, config: TrainConfig, vocab: int) -> str | None:
        """Books one step. Returns why the run must end there, None where it is healthy."""
        self.step += 1
        for name, value in (("loss", loss), ("norm of the gradient", grad_norm)):
            if not math.isfinite(value):
                return f"The {name} became {value} at step {self.step}. Lower the learning rate (it was at most {config.lr:g})."
        self.first_loss = self.first_loss if self.first_loss is not None else loss
        limit = self.limit(config, vocab)
        self.diverging = self.diverging + 1 if loss > limit else 0
        self.losses.append(loss)
        self.grad_norms.append(grad_norm)
        if self.diverging >= config.diverged_steps:
            return (
                f"The loss diverged: at step {self.step} it is {loss:.3g} nats and was above {limit:.3g} for "
                f"{self.diverging} steps in a row. Lower the learning rate (it was at most {config.lr:g})."
            )
        return None

    def line(self, lr: float, tokens_per_step: int) -> dict[str, float]:
        """Closes the open line: mean loss, mean gradient norm and tokens per second since the last one."""
        rate = len(self.losses) * tokens_per_step / self.busy
        self.final_loss, norm = statistics.fmean(self.losses), statistics.fmean(self.grad_norms)
        self.rates.append(rate)
        self.losses, self.grad_norms, self.busy = [], [], 0.0
        return {"step": self.step, "loss": self.final_loss, "lr": lr, "grad_norm": norm, "tokens_per_s": rate}

    @property
    def tokens_per_s(self) -> float:
        """Median over the lines, without the first, which holds the warm-up of the machine, wherever there are others."""
        return statistics.median(self.rates[1:] or self.rates or [math.nan])
