"""Our own `lengthen.models.Decoder`."""

import json
from collections.abc import Sequence
from dataclasses import asdict

import torch
from torch import Tensor

from lengthen.models import Decoder

from ..model.subject import Facts, Subject, chunks


class OwnDecoder(Subject):
    """Masks say which tokens are valid; positions belong to the scheme, and documents are an argument of their own."""

    def __init__(self, model: Decoder, name: str | None = None):
        self.model = model.eval()
        self.name = name if name is not None else "Decoder"

    @property
    def facts(self) -> Facts:
        lacks = {"positions": "positions belong to its schemes; documents are an argument of their own"}
        if not all(s.pattern.causal for s in self.model.schemes):
            lacks["causal"] = lacks["cache"] = "a scheme attends in both directions"
        return Facts(self.model.config.vocab, lacks={**lacks, "reload": "it is saved with the specs that made it"})

    def logits(self, ids: Tensor, mask: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        return self.model(ids, valid=None if mask is None else mask.bool()).double()

    def decode(self, ids: Tensor, sizes: Sequence[int], mask: Tensor | None = None) -> Tensor:
        cache, found = self.model.new_cache(), []
        for part in chunks(ids.shape[1], sizes):
            valid = None if mask is None else mask[:, part].bool()
            found.append(self.model(ids[:, part], valid=valid, cache=cache).double())
        return torch.cat(found, dim=1)

    def packed(self, ids: Tensor, doc: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.model(ids, valid=None if mask is None else mask.bool(), doc=doc).double()

    def carrying(self, model: Decoder) -> Subject:
        return OwnDecoder(model, self.name)

    def configuration(self) -> str:
        return json.dumps(asdict(self.model.config), sort_keys=True)
