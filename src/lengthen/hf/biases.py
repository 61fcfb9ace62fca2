"""ALiBi of transformers' models: the bias that each block is handed, replaced by ours."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from lengthen.core import Refusal, Scheme
from lengthen.methods.alibi import ALiBi

from .swap import evaluating

ARGUMENTS = {"bloom": "alibi", "mpt": "position_bias", "falcon": "alibi"}
"""By model type, how its blocks call the bias."""
LENGTHS = ("max_seq_len", "max_position_embeddings", "seq_length")
"""Entries that may hold the trained length."""


class Biases:
    """A distance term at work in all blocks of a model, until `remove`."""

    route = "bias"

    def __init__(self, model: PreTrainedModel, scheme: Scheme):
        self.model, self.term, self.before = model, scheme.terms[0], {}
        self.name = ARGUMENTS[model.config.model_type]
        self.blocks = blocks(model, self.name)
        self.layers = len(self.blocks)
        self._made: tuple[tuple, Tensor] | None = None
        self._undo = ExitStack()
        for block in self.blocks:
            self._undo.callback(block.register_forward_pre_hook(self._replace, with_kwargs=True).remove)

    @staticmethod
    def refusal(model: nn.Module) -> str | None:
        """Why a model has no such bias; None where it has."""
        kind = model.config.model_type
        if kind not in ARGUMENTS:
            return f"its biases are known for {', '.join(ARGUMENTS)}, and this is a {kind}"
        if kind == "falcon" and not model.config.alibi:
            return "this Falcon turns queries and keys and has no ALiBi"
        if kind == "falcon" and model.config._attn_implementation != "sdpa":
            return f"only under the attention 'sdpa' does a Falcon add its bias once, and this one is on {model.config._attn_implementation!r}"
        return None

    @staticmethod
    def own(model: PreTrainedModel) -> Scheme:
        """The bias as the checkpoint was trained with it."""
        return Scheme(terms=[ALiBi(model.config.num_attention_heads)])

    @staticmethod
    def trained_length(config: PreTrainedConfig) -> int | None:
        facts = config.to_dict()
        return next((facts[name] for name in LENGTHS if facts.get(name) is not None), None)

    def configure(self, tokens: int) -> None:
        """MPT builds its bias for max_seq_len keys, so a longer text needs more than the hook."""
        config, facts = self.model.config, self.model.config.to_dict()
        for name in (name for name in LENGTHS if facts.get(name) is not None):
            self.before[name] = getattr(config, name)
            self._undo.callback(setattr, config, name, self.before[name])
            setattr(config, name, tokens)

    def remove(self) -> None:
        """The model as it was."""
        self._undo.close()

    def _replace(self, block: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        old, mask = kwargs[self.name], kwargs.get("attention_mask")
        bias = self._bias(old.shape[-1], old.dtype, old.device)
        kwargs = {**kwargs, self.name: bias.repeat(old.numel() // bias.numel(), 1).view(old.shape)}
        if self.model.config.model_type == "falcon":
            # Its mask holds the bias too, scaled as the scores are; the least number where nothing is seen.
            size = self.model.config.hidden_size // self.model.config.num_attention_heads
            kwargs["attention_mask"] = torch.where(mask > torch.finfo(mask.dtype).min / 2, bias[:, None] / size**0.5, mask)
        return args, kwargs

    def _bias(self, keys: int, kind: torch.dtype, device: torch.device) -> Tensor:
        """[H, K]: as the last key's query sees it; other rows differ by a constant, which no softmax sees."""
        key = keys, kind, device
        if self._made is None or self._made[0] != key:
            distance = torch.arange(keys - 1, -1, -1, dtype=torch.float64, device=device)
            self._made = key, self.term.at(distance).to(kind)
        return self._made[1]


def blocks(model: PreTrainedModel, name: str) -> list[nn.Module]:
    """The outermost modules that are handed a tensor of that name, seen by running the model."""
    found: list[nn.Module] = []

    def look(module: nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> None:
        if isinstance(kwargs.get(name), Tensor):
            found.append(module)

    hooks = [m.register_forward_pre_hook(look, with_kwargs=True) for m in model.modules()]
    try:
        with evaluating(model):
            model(torch.ones(1, 4, dtype=torch.long, device=model.device), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    inner = {id(child) for module in found for child in module.modules() if child is not module}
    outer = [module for module in found if id(module) not in inner]
    if not outer:
        raise Refusal(f"No block of {type(model).__name__} is handed a bias named {name!r}, so there is none to change.")
    return outer
