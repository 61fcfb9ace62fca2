"""What differs between the arms of a transformers model: its rotary modules, and what computes its attention."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from torch import Tensor, nn

from lengthen.hf import Extension
from lengthen.hf.attention import CARRIED
from lengthen.hf.rotary import Turning

from .places import GivenPositions
from .s2 import ShiftedAttention, ShiftedSparse
from .way import DROPPED, MOVED, SHIFTED, Way


@dataclass
class Switch:
    """One thing of the model that differs between arms."""

    set: Callable[[object], None]
    plain: object
    by_arm: Mapping[str, object]

    def to(self, arm: str | None) -> None:
        self.set(self.by_arm.get(arm, self.plain) if arm is not None else self.plain)


@dataclass(frozen=True)
class After:
    """A change of positions, of the positions of the step."""

    places: GivenPositions
    change: Callable[[Tensor], Tensor]

    def __call__(self, pos: Tensor) -> Tensor:
        return self.change(self.places(pos))


def turnings(model: nn.Module) -> list[Turning]:
    """The rotary modules that an extension put in."""
    return list(dict.fromkeys(m for m in model.modules() if isinstance(m, Turning)))


def switches(extension: Extension, way: Way, places: GivenPositions) -> Iterator["Switch"]:
    """What each arm changes, with what it was."""
    for module in turnings(extension.model):
        changes = {kind: module.changes.get(kind, _same) for kind in module.rotations}
        moved = {kind: After(places, change) for kind, change in changes.items()}
        yield Switch(_setter(module, "changes"), module.changes, {MOVED: moved})
        yield Switch(_setter(module, "rotations"), module.rotations, {DROPPED: dict.fromkeys(module.rotations)})
    if isinstance(way, ShiftedSparse):
        sparse = ShiftedAttention(way.size)
        for layer in extension.model.modules():
            carried = layer.__dict__.get(CARRIED)
            if carried is not None:
                by_arm = {SHIFTED: replace(carried, attend=sparse)}
                yield Switch(_dict_setter(layer), carried, by_arm)


def _setter(module: nn.Module, name: str) -> Callable[[object], None]:
    return lambda value: setattr(module, name, value)


def _dict_setter(layer: nn.Module) -> Callable[[object], None]:
    """Past nn.Module's own __setattr__, as `hf.install` puts it there."""
    return lambda value: layer.__dict__.__setitem__(CARRIED, value)


def _same(pos: Tensor) -> Tensor:
    return pos
