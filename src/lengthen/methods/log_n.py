"""log-n scaling: attention that stays as sharp as its context grows (Chiang & Cholak 2022, arXiv:2202.12172)."""

import math

from torch import Tensor

from lengthen.core import Scheme, Temperature, method
from lengthen.core.errors import require_count


class LogN(Temperature):
    """q . k times ln n / ln L, n the keys that the query itself sees (its own row, never the length of the batch).

    1 at n = L, the training length; 0 at n = 1, where one key takes all anyway. `clip` keeps it at 1 below L, for models
    that were trained without it.
    """

    def __init__(self, train_length: int, clip: bool = False):
        super().__init__()
        require_count("LogN", "train_length", train_length, "tokens", least=2)
        self.train_length, self.clip = train_length, clip

    def forward(self, seen: Tensor) -> Tensor:
        factor = seen.log()[:, None] / math.log(self.train_length)
        return factor.clamp_min(1.0) if self.clip else factor


@method("log_n", family="temperature", paper="2202.12172", modifies=True, variants=({"clip": True},))
def log_n(train_length: int, *, clip: bool = False) -> Scheme:
    """Scores grow with the logarithm of the number of visible keys.

    clip: never below 1, for a model trained without it; False when training from scratch.
    """
    return Scheme(temperature=LogN(train_length, clip))
