"""A check of packing with the arguments that a training loop leaves at their defaults."""

import torch

from .check import NotApplicable
from .hugging_face import HuggingFace
from .register import model_check
from .rows import _packed
from .subject import Subject
from .verdict import Measured


class _Defaults(HuggingFace):
    """Forwards as written without `use_cache`."""

    def logits(self, ids, mask=None, positions=None) -> torch.Tensor:
        return self._call(ids, mask, positions).logits.double()


@model_check(
    "packed_defaults",
    "packing",
    meaning="Documents packed into one row read each other unless the caller also passes use_cache=False.",
    cause="Borders are inferred from positions only where there is no cache, and a forward makes one by default.",
)
def packed_defaults(subject: Subject) -> Measured:
    """Documents packed into one row, with positions that restart and no other argument, give the logits of each alone."""
    if type(subject) is not HuggingFace:
        raise NotApplicable("only models of transformers read borders from positions")
    return _packed(_Defaults(subject.model, subject.name), mask=False)
