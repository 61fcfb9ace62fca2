"""DroPE: train on without positions (Gelberg et al. 2025, arXiv:2512.12167).

The paper's recipe, and its released code's: pretrain with RoPE; drop every rotation at once; go on at the original length for a
short recalibration (SmolLM-360M: 2048 tokens, learning rate 3e-4), with normalised queries and keys where the learning rate
is high; read longer texts with a softmax temperature. The code takes that as one constant (`softmax_scale`) from the model's
configuration and gives no value. Here it is log-n attention, clipped at the trained length: 1 while recalibrating, ln n / ln L
where a query sees n > L keys. Normalised queries and keys are not added: that would be another model.
"""

from dataclasses import dataclass

from lengthen.core import Scheme, UsageError
from lengthen.methods.log_n import LogN

from .way import DROPPED, PLAIN, Way


@dataclass(frozen=True)
class Dropped(Way):
    """Rows of the trained length, from some step on without positions."""

    at: float = 0.0
    """The share of the steps after which positions are dropped; 0 for a model that is pretrained already."""
    temperature: bool = True
    """Whether the result sharpens attention beyond the trained length."""

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.at < 1:
            raise UsageError(
                f"Positions are dropped after a share of the steps in [0, 1), got {self.at}. 0 drops them at once."
            )

    @property
    def row(self) -> int:
        return self.trained

    @property
    def arms(self) -> tuple[str, ...]:
        return (PLAIN, DROPPED) if self.at else (DROPPED,)

    def arm(self, step: int, steps: int) -> str:
        return PLAIN if step < round(self.at * steps) else DROPPED

    def short_arm(self, step: int, steps: int) -> str:
        return self.arm(step, steps)

    def scheme(self, scheme: Scheme) -> Scheme:
        """What is left of a layer's scheme: its pattern, under the temperature."""
        return Scheme(pattern=scheme.pattern, temperature=LogN(self.trained, clip=True) if self.temperature else None)

    @property
    def spec(self) -> str:
        """The result as a method spec."""
        return "nope+log_n:clip=True" if self.temperature else "nope"
