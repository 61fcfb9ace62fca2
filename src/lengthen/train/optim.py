"""AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101) under a cosine with linear warm-up."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lengthen.core import Scheme

from .config import TrainConfig


def learning_rate(config: TrainConfig, step: int) -> float:
    """Of step 0, 1, ..., as a pure function: lr (step + 1) / W for step < W, W the warm-up, then with S steps in all
    lr (f + (1 - f) (1 + cos(pi (step - W) / (S - W))) / 2), f the floor."""
    warm = config.warmup_steps
    if step < warm:
        return config.lr * (step + 1) / warm
    done = (step - warm) / max(config.steps - warm, 1)
    return config.lr * (config.lr_floor + (1 - config.lr_floor) * (1 + math.cos(math.pi * done)) / 2)


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW with three groups: matrices outside the schemes, which decay; vectors; the schemes' own parameters.

    Parameters that several layers share are counted once.
    """
    own = {id(p) for m in model.modules() if isinstance(m, Scheme) for p in m.parameters()}
    trained = [p for p in model.parameters() if p.requires_grad]
    outside = [p for p in trained if id(p) not in own]
    groups = [
        {"params": [p for p in outside if p.dim() >= 2], "weight_decay": config.weight_decay, "scale": 1.0},
        {"params": [p for p in outside if p.dim() < 2], "weight_decay": 0.0, "scale": 1.0},
        {"params": [p for p in trained if id(p) in own], "weight_decay": 0.0, "scale": config.scheme_lr},
    ]
    fused = all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in trained)
    return torch.optim.AdamW([g for g in groups if g["params"]], config.lr, (config.beta1, config.beta2), fused=fused)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Each group's learning rate: `lr` times its scale."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["scale"]


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimiser's state as `<parameter>/<entry>`; a parameter that never had a gradient has none."""
    states = ((name, optimizer.state.get(p, {})) for name, p in model.named_parameters())
    return {f"{name}/{entry}": value for name, state in states for entry, value in state.items()}


def put_optimizer_tensors(tensors: Mapping[str, Tensor], optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    """The reverse of `optimizer_tensors`."""
    parameters = dict(model.named_parameters())
    optimizer.state.clear()
    for key, value in tensors.items():
        name, entry = key.rsplit("/", 1)
        p = parameters[name]
        optimizer.state[p][entry] = value.to(p.device, copy=True)
