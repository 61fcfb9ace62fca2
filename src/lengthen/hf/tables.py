"""Learned position tables of transformers' models (GPT-2, OPT): found by what they give, and replaced by longer ones."""

import copy
from contextlib import ExitStack

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from lengthen.core import Refusal, Scheme
from lengthen.methods.learned_interpolation import stretched

from .positions import counted
from .swap import Slot, evaluating

TOKENS = 8


class Tables:
    """A learned table read between its rows, until `remove`. Rows of a batch count their own tokens, padding left out."""

    route = "table"

    def __init__(self, model: PreTrainedModel, scheme: Scheme):
        self.model, self.before = model, {}
        self.factor = 1.0 if scheme.embedding is None else scheme.embedding.factor
        slot, first = table_of(model)
        self.layers, self._undo = 1, ExitStack()
        setattr(slot.parent, slot.name, longer(slot.module, first, self.factor))
        self._undo.callback(setattr, slot.parent, slot.name, slot.module)
        self._decoder = slot.parent

    @staticmethod
    def refusal(model: nn.Module) -> str | None:
        """Why a model has no such table; None where it has, or may have."""
        rows = model.config.to_dict().get("max_position_embeddings", model.config.to_dict().get("n_positions"))
        return None if rows is not None else "its configuration names no length of a table (max_position_embeddings)"

    @staticmethod
    def own(model: PreTrainedModel) -> Scheme:
        """The table as it is."""
        return Scheme()

    @staticmethod
    def trained_length(config: PreTrainedConfig) -> int:
        return config.max_position_embeddings

    def configure(self, tokens: int) -> None:
        """The configuration follows the table, so that save_pretrained writes what plain transformers loads."""
        config = self.model.config
        self._undo.callback(setattr, config, "max_position_embeddings", config.max_position_embeddings)
        config.max_position_embeddings = tokens
        self._undo.callback(self._decoder.register_forward_pre_hook(counted, with_kwargs=True).remove)

    def remove(self) -> None:
        """The model as it was."""
        self._undo.close()


def table_of(model: PreTrainedModel) -> tuple[Slot, int]:
    """The embedding whose rows enter one after another, and its first row (OPT leaves two out), seen by running the model.

    Raises Refusal where none does.
    """
    found: dict[nn.Module, Tensor] = {}
    slots = [Slot(m, name, c) for m in model.modules() for name, c in m.named_children() if isinstance(c, nn.Embedding)]
    hooks = [s.module.register_forward_hook(lambda m, _, out: found.setdefault(m, out)) for s in slots]
    try:
        with evaluating(model):
            model(torch.ones(1, TOKENS, dtype=torch.long, device=model.device), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    for slot in slots:
        if slot.module not in found:
            continue
        spare = slot.module.num_embeddings - model.config.max_position_embeddings
        given = found[slot.module].reshape(-1, slot.module.embedding_dim)
        for first in range(spare + 1):
            if given.shape[0] == TOKENS and torch.equal(slot.module.weight[first : first + TOKENS], given):
                return slot, first
    raise Refusal(
        f"No table of {type(model).__name__} gives one row after another, {model.config.max_position_embeddings} in all, so it "
        "has no learned positions to read between."
    )


def longer(table: nn.Embedding, first: int, factor: float) -> nn.Embedding:
    """The same kind of module with its rows from `first` on stretched."""
    made = copy.copy(table)
    with torch.no_grad():
        rows = torch.cat((table.weight[:first], stretched(table.weight[first:], factor)))
    made._parameters = {"weight": nn.Parameter(rows, requires_grad=table.weight.requires_grad)}
    made.num_embeddings = len(rows)
    return made
