"""Controls: the same weights read as if the model knew its limit. Without them, a number beyond the training length
cannot say whether the encoding or the mask earned it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import nn

from lengthen.core import Pattern
from lengthen.core.errors import UsageError, unknown
from lengthen.methods.bca import BlockwiseCausal
from lengthen.methods.window import Window


@dataclass(frozen=True)
class Control:
    """A pattern that is laid over the model's own."""

    name: str
    pattern: Callable[[int], Pattern]
    """Training length -> pattern."""
    free: Callable[[int], int]
    """Training length -> the most tokens of which the pattern hides nothing that causal attention shows."""

    def over(self, model: nn.Module, train_length: int) -> nn.Module:
        """The model, weights shared, under both patterns."""
        pattern = self.pattern(train_length)
        return model.under(lambda scheme: scheme.with_pattern(scheme.pattern & pattern))


CONTROLS = {
    c.name: c
    for c in (
        Control("window", Window, lambda length: length),
        Control("bca", lambda length: BlockwiseCausal(length // 2), lambda length: length // 2 * 2),
    )
}
"""`window`: each token sees at most the training length. `bca`: its own and the previous block of half the training length
(Sun et al. 2022, arXiv:2212.10554, section 3.3)."""


def find_controls(names: Iterable[str]) -> tuple[Control, ...]:
    """The controls of those names, without repeats; `none`, the plain reading, is always made and may be named."""
    for name in (names := list(dict.fromkeys(names))):
        if name != "none" and name not in CONTROLS:
            raise unknown("control", name, ["none", *CONTROLS])
    return tuple(CONTROLS[n] for n in names if n != "none")


def require_causal(model: nn.Module) -> None:
    """Refuses a model that could read its own targets."""
    for layer, scheme in enumerate(model.schemes):
        if not scheme.pattern.causal:
            raise UsageError(
                f"Layer {layer} attends in both directions ({scheme.pattern}), so it would read the tokens that it must guess. "
                "Evaluate causal models only."
            )
