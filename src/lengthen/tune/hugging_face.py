"""A checkpoint of transformers on whichever of its arms a step asks for: its rotary modules and its attention are switched."""

from torch import Tensor, nn
from transformers import PreTrainedModel

from lengthen.core import Refusal, Rotation, Scheme, UsageError
from lengthen.hf import Extension, extend
from lengthen.hf.request import own_schemes
from lengthen.hf.route import ROUTES
from lengthen.hf.survey import survey
from lengthen.train import Objective

from .drope import Dropped
from .places import GivenPositions
from .readable import Readable
from .s2 import ShiftedSparse
from .switches import Switch, switches, turnings
from .way import DROPPED, MOVED, PLAIN, SHIFTED, Way


class HuggingFaceObjective(nn.Module):
    """Nats summed over the targets. A model that nobody extended keeps its own frequencies; `release` puts all back."""

    def __init__(self, subject: PreTrainedModel | Extension, way: Way):
        super().__init__()
        self._own, extension = _extension(subject, way)
        self.model = extension.model if extension is not None else subject
        self.way, self.places = way, GivenPositions()
        self._switches: list[Switch] = []
        try:
            if extension is not None:
                require_room(extension, way)
                self._switches = list(switches(extension, way, self.places))
            self.reader = Objective(Readable(self.model))
        except BaseException:
            self.release()
            raise
        self.vocab = self.reader.vocab

    def open(self) -> None:
        """Nothing to do: the model's modules are read when it runs."""

    def forward(self, ids: Tensor, targets: Tensor, doc: Tensor | None = None, *, arm: str, pos: Tensor | None) -> Tensor:
        """int64 [B, T] twice, where tokens stand [B, T] -> a scalar."""
        self.places.now = pos
        for switch in self._switches:
            switch.to(arm)
        return self.reader(ids, targets, doc)

    def rotations(self) -> list[Rotation | None]:
        """How an extension turns queries and keys, by layer type; a model as it is says so in its configuration."""
        for switch in self._switches:
            switch.to(None)
        return [r for m in turnings(self.model)[:1] for r in m.rotations.values()]

    def release(self) -> None:
        """The model as it was given, but for its weights."""
        self.places.now = None
        for switch in self._switches:
            switch.to(None)
        self._switches = []
        if self._own is not None:
            self._own.restore()
            self._own = None

    def outcome(self) -> PreTrainedModel:
        """The tuned model. After DroPE, `extend(model, way.spec, tokens=target)` reads it without positions."""
        return self.model


def _extension(subject: PreTrainedModel | Extension, way: Way) -> tuple[Extension | None, Extension | None]:
    """The one that was made for it here, and the extension to train under; None: the model as it is."""
    if isinstance(subject, Extension):
        if subject.installed is None:
            raise UsageError(
                "This Extension has been restored: its model is the checkpoint's own again. Extend it anew to tune it."
            )
        return None, subject
    if turnings(subject):
        raise UsageError("This model is extended. Pass its Extension, the result of extend(), to tune it as it is.")
    if way.arms == (PLAIN,):
        return None, None
    schemes = own_schemes(survey(subject), way.target)
    made = extend(subject, schemes, tokens=way.target, route="turned" if isinstance(way, ShiftedSparse) else None)
    return made, made


def require_room(extension: Extension, way: Way) -> None:
    """Refuses ways that the extension's route or schemes leave no room for."""
    route = extension.route
    if route not in ROUTES and way.arms != (PLAIN,):
        raise Refusal(f"This model does not turn queries and keys (route {route!r}), so it is tuned at full length only.")
    if MOVED in way.arms:
        _require_movable(route, list(extension.schemes.values()))
    if DROPPED in way.arms and (route != "rotary" or not isinstance(way, Dropped)):
        raise Refusal(
            f"DroPE drops the turning of a model, and this one has more than that (route {route!r}). Give the checkpoint as it is."
        )
    if SHIFTED in way.arms and route == "rotary":
        raise UsageError(
            "S2 attention runs in our attention, and this extension left it to transformers. Extend with route='turned' to tune, "
            "and without it to read."
        )


def _require_movable(route: str, schemes: list[Scheme]) -> None:
    more = [s for s in schemes if s.branches or s.terms or s.value_terms or s.positions is not None]
    if route == "raw" or more:
        raise Refusal(
            f"PoSE and randomised positions move what the rotary module turns, and this scheme places tokens elsewhere too (route "
            f"{route!r}). Tune it at full length, or with a scheme that only turns, such as 'yarn'."
        )
