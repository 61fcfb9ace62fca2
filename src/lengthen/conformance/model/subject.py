"""What a check may do with somebody's causal language model."""

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..check import NotApplicable
from .declared import Compared


@dataclass(frozen=True)
class Facts:
    """What is known of a model before it is run."""

    vocab: int
    length: int | None = None
    """Tokens that it declares to serve."""
    switches: tuple[int, ...] = ()
    """Lengths, in tokens, at which a rule changes: an original length, a declared maximum, a window."""
    adaptive: tuple[int, ...] = ()
    """Those of the switches from which on frequencies change with the length."""
    absolute: bool = False
    """Whether positions are embedded, so that shifting all of them may change the logits."""
    ends: bool = False
    """Whether it declares to refuse, or to have no answer, beyond `length`."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """What it cannot do -> the reason, of 'cache', 'mask', 'positions', 'documents', 'causal', 'reload'."""


class Subject(ABC):
    """A causal language model under check. Ids are int64 [B, T]; logits come as float64 [B, T, V]."""

    name: str
    model: nn.Module
    tokenizer: Any = None
    """What belongs to the model, where it was given."""
    seed: int = 0
    """Of the texts."""

    @property
    @abstractmethod
    def facts(self) -> Facts:
        """What is known of it."""

    @abstractmethod
    def logits(self, ids: Tensor, mask: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        """One forward. mask: int64 [B, T], 0 on padding. positions: int64 [B, T]."""

    @abstractmethod
    def decode(self, ids: Tensor, sizes: Sequence[int], mask: Tensor | None = None) -> Tensor:
        """The same through a fresh cache, in chunks of those sizes, the last of which repeats."""

    def packed(self, ids: Tensor, doc: Tensor, mask: Tensor | None = None) -> Tensor:
        """Logits of documents packed into rows, in the way that the library offers: positions that restart, unless overridden.

        doc: int64 [B, T], the number of each token's document. Raises NotApplicable where there is no way.
        """
        self.requires("positions", "documents")
        return self.logits(ids, mask, restarting(doc))

    @abstractmethod
    def carrying(self, model: nn.Module) -> "Subject":
        """A subject of the same kind for another model of the same class."""

    def reloaded(self, folder: Path) -> "Subject":
        """Saved into a folder, and loaded from it as a user would. Raises NotApplicable where there is no such way."""
        raise NotApplicable(f"{self.name} has no way to be saved and loaded that the check knows")

    def configuration(self) -> str:
        """The settings of the model as text, for comparison."""
        return ""

    def spectra(self) -> list[Compared]:
        """Rotary frequencies that run against those that are declared; empty where neither is known."""
        return []

    def fresh(self) -> "Subject":
        """A copy that remembers no request."""
        return self.carrying(copy.deepcopy(self.model))

    def converted(self, dtype: torch.dtype) -> "Subject":
        """A copy after `.to(dtype)`."""
        return self.carrying(copy.deepcopy(self.model).to(dtype))

    def requires(self, *needed: str) -> None:
        """Raises NotApplicable with the reason where something needed is lacking."""
        for what in needed:
            if what in self.facts.lacks:
                raise NotApplicable(self.facts.lacks[what])

    def ids(self, tokens: int, rows: int = 2, salt: int = 0) -> Tensor:
        """Random token ids, int64 [rows, tokens]; the three lowest, often special, are left out where there are more."""
        low = 3 if self.facts.vocab > 8 else 0
        generator = torch.Generator().manual_seed(1000 * self.seed + 100 + salt)
        return torch.randint(low, self.facts.vocab, (rows, tokens), generator=generator)

    def within(self, tokens: int) -> int:
        """`tokens`, or fewer where the model declares to end before."""
        return min(tokens, self.facts.length) if self.facts.ends and self.facts.length is not None else tokens

    @cached_property
    def noise(self) -> float:
        """How far the logits of a text move when every weight is off by a rounding of its type."""
        ids, other, generator = self.ids(self.within(33)), self.fresh(), torch.Generator().manual_seed(1)
        for p in other.model.parameters():
            if p.is_floating_point():
                sign = torch.randint(0, 2, p.shape, generator=generator) * 2 - 1
                p.data *= 1 + torch.finfo(p.dtype).eps * sign.to(p.device)
        return difference(other.logits(ids), self.fresh().logits(ids))

    def fingerprint(self) -> str:
        """A digest of every weight, buffer of the state dict and setting."""
        digest = hashlib.sha256(self.configuration().encode())
        for name, t in sorted(self.model.state_dict().items()):
            if isinstance(t, Tensor):
                digest.update(name.encode())
                digest.update(t.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if t.numel() else b"")
        return digest.hexdigest()


def restarting(doc: Tensor) -> Tensor:
    """Positions [B, T] that start at 0 in every document [B, T]."""
    places = torch.arange(doc.shape[1], device=doc.device).expand_as(doc)
    first = torch.ones_like(doc, dtype=torch.bool)
    first[:, 1:] = doc[:, 1:] != doc[:, :-1]
    return places - torch.where(first, places, 0).cummax(dim=1).values


def chunks(tokens: int, sizes: Sequence[int]) -> list[slice]:
    """Consecutive slices of those sizes; the last size repeats until the tokens are used up."""
    found, start = [], 0
    while start < tokens:
        size = sizes[min(len(found), len(sizes) - 1)]
        found.append(slice(start, min(start + size, tokens)))
        start += size
    return found


def rounding(subject: Subject, logits: Tensor) -> float:
    """What two ways of computing the same logits may differ by, in the model's own type.

    200 roundings of the largest logit, or ten times what rounding every weight once moves the logits by: a model with
    peaked attention amplifies what is lost on the way.
    """
    return max(200 * _eps(subject.model) * max(1.0, logits.abs().max().item()), 10 * subject.noise)


def _eps(model: nn.Module) -> float:
    kinds = {p.dtype for p in model.parameters() if p.is_floating_point()} or {torch.float32}
    return max(torch.finfo(k).eps for k in kinds)


def difference(a: Tensor, b: Tensor) -> float:
    """The largest difference; infinite where either is not finite."""
    if a.shape != b.shape:
        raise ValueError(f"got logits of shapes {tuple(a.shape)} and {tuple(b.shape)}, which should agree")
    return (a - b).abs().nan_to_num(nan=torch.inf, posinf=torch.inf).max().item() if a.numel() else 0.0
