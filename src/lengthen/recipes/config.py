"""What decides a comparison, as one frozen record."""

import re
from dataclasses import dataclass

from lengthen.core import UsageError, build_layers, parse
from lengthen.core.errors import require_count
from lengthen.core.registry import canonical
from lengthen.evaluate import PROTOCOLS
from lengthen.evaluate.controls import find_controls
from lengthen.evaluate.protocols import make_protocols
from lengthen.models import DecoderConfig, preset
from lengthen.train import TrainConfig


@dataclass(frozen=True)
class CompareConfig:
    """Settings of a comparison: every method sees the same data in the same order from the same initial weights."""

    methods: tuple[str, ...]
    """Specs, such as `rope` or `rope+window:tokens=64`."""
    train_length: int = 128
    """Tokens per training sequence, L."""
    lengths: tuple[int, ...] = (128, 256, 512, 1024, 2048)
    """Tokens per window that is read, rising; L is always read too."""
    seeds: tuple[int, ...] = (0, 1)
    """One training run per method and seed; a seed decides initial weights, data order and dropout."""
    data: str = "demo"
    """See `lengthen.data.load_corpus`."""
    tokenizer: str = "bytes"
    """See `lengthen.data.load_tokenizer`."""
    preset: str = "tiny"
    """See `lengthen.models.PRESETS`."""
    steps: int = 900
    """Training steps per run."""
    batch: int = 8
    """Sequences per step."""
    lr: float = 4e-3
    """Peak learning rate."""
    scheme_lr: float = 1.0
    """Learning rate of the encodings' own parameters, as a multiple of `lr`."""
    precision: str = "fp32"
    """'fp32' or 'bf16' autocast."""
    protocols: tuple[str, ...] = tuple(PROTOCOLS)
    """See `lengthen.evaluate.PROTOCOLS`."""
    controls: tuple[str, ...] = ("none", "window", "bca")
    """See `lengthen.evaluate.CONTROLS`."""
    documents: int = 16
    """Held-out documents read at most."""
    targets: int = 64
    """Tokens scored by the fixed-target protocol."""
    stride: int | None = None
    """Of the sliding window, tokens; None: half a window."""
    cost: bool = True
    """Also train sinusoidal at 2L for the time that ALiBi takes at L, where both are compared."""

    def __post_init__(self):
        object.__setattr__(self, "methods", tuple(canonical(m) for m in self.methods))
        require_count("compare", "train_length", self.train_length, "tokens", least=2)
        for name, unit in (("steps", "steps"), ("batch", "sequences"), ("documents", "documents"), ("targets", "tokens")):
            require_count("compare", name, getattr(self, name), unit)
        if not self.methods:
            raise UsageError("No method was given. `lengthen list` shows what there is.")
        if not self.seeds:
            raise UsageError("No seed was given. Give at least one, as in seeds=(0,).")
        for values, what in ((self.methods, "method"), (self.seeds, "seed")):
            twice = [v for v in values if values.count(v) > 1]
            if twice:
                raise UsageError(f"The {what} {twice[0]!r} is given twice. Give each once.")
        read = sorted({*self.lengths, self.train_length})
        make_protocols(self.protocols, read, targets=self.targets, stride=self.stride)
        find_controls(self.controls)
        self.training(0, self.steps)
        for spec in self.methods:
            self.layers(spec, self.train_length)
        self._require_distinct()

    def _require_distinct(self) -> None:
        """Refuses two spellings of one method: the second run would find the folder of the first and call it done."""
        for n, one in enumerate(self.methods):
            for other in self.methods[:n]:
                if parse(one) == parse(other) or slug(one) == slug(other):
                    raise UsageError(f"The methods {other!r} and {one!r} are one, spelt in two ways. Give one of them.")

    def model(self, vocab: int) -> DecoderConfig:
        """Sizes of every compared model."""
        return preset(self.preset, vocab=vocab)

    def layers(self, spec: str, train_length: int) -> list:
        """Schemes of a model of this size; raises what is wrong with the spec."""
        sizes = self.model(256)
        made = build_layers([spec], sizes.layers, sizes.shape(train_length))
        for scheme in made:
            if not scheme.pattern.causal:
                raise UsageError(f"{spec!r} attends in both directions; a language model needs a causal pattern.")
        return made

    def training(self, seed: int, steps: int) -> TrainConfig:
        """Settings of one training run."""
        return TrainConfig(steps, lr=self.lr, scheme_lr=self.scheme_lr, precision=self.precision, seed=seed)


def slug(spec: str) -> str:
    """A folder name for a spec."""
    return re.sub(r"[^a-z0-9_+.-]+", "_", spec.lower())


DEMO = CompareConfig(methods=("nope", "sinusoidal", "rope", "rope+randomised:evaluate=plain", "xpos", "t5", "alibi", "kerple"))
"""The comparison that `make demo` runs: a method of each family that is trained from scratch."""
