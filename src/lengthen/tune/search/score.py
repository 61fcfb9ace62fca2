"""The perplexity of a model under a candidate."""

import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from lengthen.core import Refusal, Rotation, Scheme
from lengthen.data import IGNORED
from lengthen.methods.rope import Rotary
from lengthen.models import Decoder
from lengthen.train import Objective

from .rotation import rotation_of
from .rows import Row
from .space import Candidate

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class DecoderScore:
    """exp of the mean loss over the scored tokens of all rows, under the candidate's rotation in every layer."""

    def __init__(self, model: Decoder, rows: Sequence[Row], mscale: float = 1.0):
        self.model, self.rows, self.mscale = model, rows, mscale
        self.own = _own([s.rotation for s in dict.fromkeys(model.schemes)], type(model).__name__)

    def __call__(self, candidate: Candidate) -> float:
        rotation = rotation_of(candidate, self.own, self.mscale)
        arm = self.model.under(lambda scheme: turned_by(scheme, rotation)).eval()
        return perplexity(Objective(arm), self.rows)

    def facts(self) -> dict[str, Any]:
        """What decides the scores, beside the candidate."""
        return {"rows": rows_digest(self.rows), "mscale": self.mscale}

    def release(self) -> None:
        """Nothing was changed."""


class HuggingFaceScore:
    """The same for a model of transformers that nobody extended; `release` puts its own frequencies back."""

    def __init__(self, model: "PreTrainedModel", rows: Sequence[Row], target: int, mscale: float = 1.0):
        from lengthen.hf import extend
        from lengthen.hf.request import own_schemes
        from lengthen.hf.survey import survey

        from ..readable import Readable
        from ..switches import turnings

        schemes = own_schemes(survey(model), target)
        self.own = _own([s.rotation for s in schemes.values()], type(model).__name__)
        self.extension = extend(model, schemes, tokens=target)
        self.turnings = turnings(model)
        self.rows, self.mscale, self.read = rows, mscale, Objective(Readable(model))

    def __call__(self, candidate: Candidate) -> float:
        rotation = rotation_of(candidate, self.own, self.mscale)
        for module in self.turnings:
            module.rotations = dict.fromkeys(module.rotations, rotation)
        return perplexity(self.read, self.rows)

    def facts(self) -> dict[str, Any]:
        """What decides the scores, beside the candidate."""
        return {"rows": rows_digest(self.rows), "mscale": self.mscale}

    def release(self) -> None:
        """The model as it was given."""
        self.extension.restore()


def turned_by(scheme: Scheme, rotation: Rotation) -> Scheme:
    """The same stages under another rotation."""
    return Scheme(
        positions=scheme.positions,
        embedding=scheme.embedding,
        embedding_positions=scheme.embedding_positions,
        rotation=rotation,
        terms=tuple(scheme.terms),
        value_terms=tuple(scheme.value_terms),
        pattern=scheme.pattern,
        branches=scheme.branches,
        temperature=scheme.temperature,
    )


@torch.no_grad()
def perplexity(read: nn.Module, rows: Sequence[Row]) -> float:
    """exp(nats / scored tokens), the sums over all rows."""
    device = next(read.parameters()).device
    read.eval()
    nats = sum(float(read(row.ids.to(device), row.targets.to(device))) for row in rows)
    mean = nats / sum(int((row.targets != IGNORED).sum()) for row in rows)
    return math.exp(mean) if mean < 700 else math.inf


def rows_digest(rows: Sequence[Row]) -> str:
    """A hash of what is read and scored."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(row.ids.numpy().tobytes() + row.targets.numpy().tobytes())
    return digest.hexdigest()[:16]


def _own(rotations: Sequence[Rotation | None], name: str) -> Rotary:
    """The one trained rotation of a model."""
    if len(rotations) != 1 or type(rotations[0]) is not Rotary:
        kinds = ", ".join(type(r).__name__ if r is not None else "none" for r in rotations)
        raise Refusal(f"The search finds divisors for the one spectrum of a model, and {name} turns its layers by: {kinds}.")
    return rotations[0]
