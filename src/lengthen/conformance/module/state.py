"""Checks on every kind of module: repeatability, what earlier calls leave behind, construction without memory."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from ..adapters.ports import BiasPort, RotaryPort
from .check import EVERY, Measured, NotApplicable, module_check, worst
from .embedding import REFUSALS
from .subject import ModuleSubject


def look(subject: ModuleSubject, module: Any, tokens: int = 24, dtype: torch.dtype = torch.float32) -> Tensor:
    """What the module gives for the first tokens, float64."""
    if isinstance(subject.port, RotaryPort):
        q, k = subject.vectors(tokens)
        return torch.cat(subject.port.turn(module, q.to(dtype), k.to(dtype), 0)).double()
    if isinstance(subject.port, BiasPort):
        return subject.port.block(module, tokens, tokens).double()
    return subject.port.at(module, torch.arange(tokens)).double()


@module_check(
    "repeatable",
    EVERY,
    meaning="The same input gives other results the second time: nothing measured with it can be repeated.",
    cause="Random numbers in evaluation mode, or a buffer changed by the call.",
)
def repeatable(subject: ModuleSubject) -> Measured:
    """The same call twice gives the same bits."""
    module = subject.make()
    return Measured((look(subject, module) - look(subject, module)).abs().max().item(), 0.0)


@module_check(
    "earlier_calls",
    EVERY,
    meaning="What one request gets depends on which requests came before it.",
    cause="A table that is kept between calls, made for another length or in another precision.",
)
def earlier_calls(subject: ModuleSubject) -> Measured:
    """A longer call, and one in half precision, leave the results of later calls as they were."""
    tokens = next(n for n in (400, 24) if n == 24 or _answers(subject, n))
    first, found = look(subject, subject.make(), tokens), []
    for before, dtype in ((600, torch.float32), (3, torch.float32), (600, torch.bfloat16)):
        module = subject.make()
        try:
            look(subject, module, before, dtype)
        except REFUSALS:
            continue
        after = (look(subject, module, tokens) - first).abs().nan_to_num(nan=torch.inf).max().item()
        what = f"after {before} tokens in {str(dtype).removeprefix('torch.')}"
        found.append(Measured(after, 1e-6 * (1 + first.abs().max().item()), what))
    return worst(found)


def _answers(subject: ModuleSubject, tokens: int) -> bool:
    try:
        look(subject, subject.make(), tokens)
    except REFUSALS:
        return False
    return True


@module_check(
    "meta_device",
    EVERY,
    meaning="Loaded as large models are (built on the meta device, then filled from a checkpoint) it computes with garbage.",
    cause="A table or frequencies in a buffer that is not in the state dict and not made again.",
)
def meta_device(subject: ModuleSubject) -> Measured:
    """Built on the meta device, emptied onto the CPU and loaded from a state dict, it computes the same.

    Memory that nothing fills is filled with nan before loading.
    """
    if not isinstance(subject.make(), nn.Module):
        raise NotApplicable("it is no torch module, so nothing is loaded into it")
    if not subject.built:
        raise NotApplicable("an instance was given; give its class or a function that makes one")
    real = subject.make()
    with torch.device("meta"):
        hollow = subject.make()
    hollow = hollow.to_empty(device="cpu")
    with torch.no_grad():
        for t in (*hollow.parameters(), *hollow.buffers()):
            t.fill_(torch.nan if t.is_floating_point() else -(2**20))
    hollow.load_state_dict(copy.deepcopy(real.state_dict()))
    error = (look(subject, hollow) - look(subject, real)).abs().nan_to_num(nan=torch.inf).max().item()
    return Measured(error, 0.0, ", ".join(_lost(real)) if error else "")


def _lost(module: nn.Module) -> list[str]:
    """The buffers that a state dict leaves out."""
    kept = module.state_dict()
    return [f"{name} is not in the state dict" for name, _ in module.named_buffers() if name not in kept]
