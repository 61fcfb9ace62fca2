"""The loss of a decoder of ours on whichever of its arms a step asks for."""

from collections.abc import Sequence

from torch import Tensor, nn

from lengthen.core import Refusal, Rotation, Scheme
from lengthen.models import Decoder
from lengthen.train import Objective

from .drope import Dropped
from .places import GivenPositions
from .s2 import ShiftedAttention, ShiftedSparse
from .way import DROPPED, MOVED, PLAIN, SHIFTED, Way


class DecoderObjective(nn.Module):
    """Nats summed over the targets. Arms are the same weights under other schemes."""

    def __init__(self, model: Decoder, way: Way):
        super().__init__()
        self.model, self.way, self.vocab, self.places = model, way, model.config.vocab, GivenPositions()
        self.open()

    def open(self) -> None:
        """Makes the arms of the modules that the model has now: adapters may have come in since."""
        names = dict.fromkeys((PLAIN, *self.way.arms))
        self.arms = nn.ModuleDict({name: Objective(arm(self.model, name, self.way, self.places)) for name in names})

    def forward(self, ids: Tensor, targets: Tensor, doc: Tensor | None = None, *, arm: str, pos: Tensor | None) -> Tensor:
        """int64 [B, T] twice, where tokens stand [B, T] -> a scalar."""
        self.places.now = pos
        return self.arms[arm](ids, targets, doc)

    def rotations(self) -> list[Rotation | None]:
        """How the model turns queries and keys, by scheme."""
        return [scheme.rotation for scheme in dict.fromkeys(self.model.schemes)]

    def release(self) -> None:
        """Nothing of the model was changed but its weights."""

    def outcome(self) -> Decoder:
        """The tuned model: without positions where they were dropped."""
        if not isinstance(self.way, Dropped):
            return self.model
        return self.model.under(self.way.scheme)


def arm(model: Decoder, name: str, way: Way, places: GivenPositions) -> Decoder:
    """The model as that arm sees it, weights shared. Raises Refusal where its schemes leave no room for it."""
    if name == MOVED:
        return model.under(lambda scheme: moved(scheme, places))
    if name == DROPPED and isinstance(way, Dropped):
        return model.under(way.scheme)
    if name == SHIFTED and isinstance(way, ShiftedSparse):
        return _shifted(model, ShiftedAttention(way.size))
    return model


def moved(scheme: Scheme, places: GivenPositions) -> Scheme:
    """The same stages at the positions of the step."""
    taken: Sequence = [m for m in (scheme.positions, scheme.embedding_positions) if m is not None]
    if taken:
        raise Refusal(
            f"This scheme places tokens itself ({type(taken[0]).__name__}), and PoSE and randomised positions do too. Train on at "
            "full length, or without it."
        )
    return Scheme(
        positions=places,
        embedding=scheme.embedding,
        rotation=scheme.rotation,
        terms=tuple(scheme.terms),
        value_terms=tuple(scheme.value_terms),
        pattern=scheme.pattern,
        branches=scheme.branches,
        temperature=scheme.temperature,
    )


def _shifted(model: Decoder, attend: ShiftedAttention) -> Decoder:
    other = model.under(lambda scheme: scheme)
    for block in other.blocks:
        block.attention.attend = attend
    return other
