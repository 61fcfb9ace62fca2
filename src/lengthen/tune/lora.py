"""LoRA (Hu et al. 2021, arXiv:2106.09685) by the `peft` library, with embeddings and norms trained too.

LongLoRA (arXiv:2309.12307, table 2): low ranks alone do not close the gap to full tuning at long lengths, whatever the rank;
with trained embeddings and norms they do.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from lengthen.core import UsageError
from lengthen.core.errors import require_count, require_positive

from .way import generator


@dataclass(frozen=True)
class Lora:
    """What is trained instead of whole matrices."""

    rank: int = 8
    """Columns of the two factors of each update."""
    alpha: float | None = None
    """Updates are multiplied by alpha / rank; None: twice the rank, as LongLoRA."""
    targets: tuple[str, ...] | None = None
    """Last parts of the names of linear modules; None: those inside attention."""
    embeddings: bool = True
    """Whether token embeddings are trained whole."""
    norms: bool = True
    """Whether the gains (and shifts) of norms are trained."""

    def __post_init__(self):
        require_count("Lora", "rank", self.rank, "columns")
        if self.alpha is not None:
            require_positive("Lora", "alpha", self.alpha, "times")


def adapt(model: nn.Module, lora: Lora, seed: int) -> None:
    """Puts low-rank updates into `model` and freezes what they replace; it computes the same as before, bit by bit.

    Raises UsageError where `peft` is missing, where a rank is above the smaller side of a matrix, and where nothing is named so.
    """
    peft = _peft()
    names = targets(model, lora)
    _require_rank(model, names, lora.rank)
    config = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha if lora.alpha is not None else 2 * lora.rank,
        target_modules=names,
        lora_dropout=0.0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(generator((seed, lora.rank)))
        peft.inject_adapter_in_model(config, model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
    for parameter in _whole(model, lora):
        parameter.requires_grad_(True)


def merge(model: nn.Module) -> None:
    """Adds the updates to the matrices and takes the adapters out: plain weights, all of them trainable again."""
    _take_out(model, lambda layer: layer.merge(safe_merge=True))


def discard(model: nn.Module) -> None:
    """Takes the adapters out and forgets them."""
    _take_out(model, lambda layer: None)


def _take_out(model: nn.Module, last: Callable[[nn.Module], None]) -> None:
    from peft.tuners.lora import LoraLayer

    for parent, name, layer in list(_children(model)):
        if isinstance(layer, LoraLayer):
            last(layer)
            setattr(parent, name, layer.get_base_layer())
    model.__dict__.pop("peft_config", None)
    model.requires_grad_(True)


def targets(model: nn.Module, lora: Lora) -> list[str]:
    """Full names of the linear modules that get updates."""
    linear = [name for name, m in model.named_modules() if isinstance(m, nn.Linear)]
    if lora.targets is not None:
        found = [n for n in linear if n.rpartition(".")[2] in lora.targets]
        wanted = f"named {' or '.join(map(repr, lora.targets))}"
    else:
        inside = tuple(f"{name}." for name, m in model.named_modules() if type(m).__name__.endswith("Attention"))
        found = [n for n in linear if n.startswith(inside)] if inside else []
        wanted = "inside attention"
    if not found:
        known = sorted({n.rpartition(".")[2] for n in linear})
        raise UsageError(f"{type(model).__name__} has no linear module {wanted}. Name some of: {', '.join(known) or 'none'}.")
    return found


def _whole(model: nn.Module, lora: Lora) -> Iterator[nn.Parameter]:
    """Parameters that are trained as they are."""
    for module in model.modules():
        if lora.embeddings and isinstance(module, nn.Embedding):
            yield from module.parameters()
        if lora.norms and "norm" in type(module).__name__.lower():
            yield from module.parameters(recurse=False)


def _require_rank(model: nn.Module, names: Sequence[str], rank: int) -> None:
    for name in names:
        least = min(model.get_submodule(name).weight.shape)
        if rank > least:
            raise UsageError(
                f"The rank {rank} is above the smaller side of {name}, {least}; an update of that rank is a whole one."
            )


def _children(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    for parent in model.modules():
        for name, child in parent.named_children():
            yield parent, name, child


def _peft():
    try:
        import peft
    except ImportError as error:
        raise UsageError(
            "LoRA is done by the package 'peft', which is not installed. Run: pip install 'lengthen[tune]'"
        ) from error
    return peft
