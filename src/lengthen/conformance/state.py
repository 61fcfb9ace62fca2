"""Checks on state: what a scheme may remember, share, and must save."""

import copy

import torch
from safetensors.torch import load, save
from torch import Tensor

from lengthen.models import DecoderConfig

from .check import Measured, NotApplicable, check, gap
from .decoding import EXACT, decode
from .subject import Subject

OTHER = DecoderConfig(vocab=50, layers=1, heads=2, groups=1, width=32, head_size=8)
"""Another model, to be run in between."""


@check("repeatability", 0.0)
@torch.no_grad()
def repeatability(subject: Subject) -> float:
    """The same input gives the same output bit by bit, whatever ran before and wherever the random generator stands.

    In between: longer and shorter texts, decoding, training mode, autocast, another type, another seed.
    """
    model, ids = subject.decoder(), subject.ids(20)
    first = model(ids)

    def between() -> None:
        model(subject.ids(48))
        model(ids[:, :3])
        if model.schemes[0].pattern.causal:
            decode(model, subject.ids(30), [7, 1])
        model.train()(subject.ids(25))
        model.eval()
        copy.deepcopy(model).bfloat16()(ids)
        with torch.autocast("cpu", torch.bfloat16):
            copy.deepcopy(model).float()(ids)
        torch.manual_seed(subject.seed + 1)

    with torch.random.fork_rng(devices=[]):
        between()
        return gap(model(ids), first)


@check("independence", 0.0)
@torch.no_grad()
def independence(subject: Subject) -> float:
    """Two instances share nothing: running or editing one, of the same or of other sizes, leaves the other as it was."""
    model, other, ids = subject.decoder(), subject.decoder(subject.scheme(salt=1)), subject.ids(20)
    first = model(ids)
    shared = {t.data_ptr() for t in _tensors(model.schemes[0])} & {t.data_ptr() for t in _tensors(other.schemes[0])}
    subject.decoder(sizes=OTHER)(subject.ids(40))
    other(subject.ids(48))
    for t in _tensors(other.schemes[0]):
        if t.is_floating_point():
            t.add_(1.0)
    other(ids)
    late = subject.decoder()
    worst = max(gap(model(ids), first), gap(late(ids), first))
    return Measured(worst + len(shared), f"{len(shared)} tensors are shared by two instances" if shared else "")


def _tensors(module: torch.nn.Module) -> list[Tensor]:
    return [t for t in (*module.parameters(), *module.buffers()) if t.numel()]


@check("save_load", EXACT)
@torch.no_grad()
def save_load(subject: Subject) -> float:
    """A state dict of tensors alone, through safetensors into a fresh instance, gives the same logits; so does a deepcopy."""
    scheme, ids = subject.scheme(), subject.ids(20)
    first = subject.decoder(scheme)(ids)
    state = scheme.state_dict()
    odd = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if odd:
        return Measured(float("inf"), f"{', '.join(odd)} would need pickle; keep tensors in the state dict")
    fresh = subject.scheme(salt=3)
    fresh.load_state_dict(load(save({name: t.contiguous() for name, t in state.items()})))
    return max(gap(subject.decoder(s)(ids), first) for s in (fresh, copy.deepcopy(scheme)))


@check("meta", EXACT)
@torch.no_grad()
def meta(subject: Subject) -> float:
    """Built without memory on the meta device, then emptied onto the CPU and loaded, a scheme gives the same logits."""
    scheme, ids = subject.scheme(), subject.ids(20)
    with torch.device("meta"):
        hollow = subject.fresh()
    hollow = hollow.to_empty(device="cpu").double()
    for t in _tensors(hollow):
        t.fill_(float("nan") if t.is_floating_point() else -(2**20))
    hollow.load_state_dict(scheme.state_dict())
    return gap(subject.decoder(hollow.eval())(ids), subject.decoder(scheme)(ids))


@check("gradients", 1e-5)
def gradients(subject: Subject) -> Measured:
    """Every trainable parameter gets a finite gradient that is not zero, and together they predict how the loss moves.

    The error is relative: the gradient along a random direction against a central difference of the loss.
    """
    scheme, ids = subject.scheme(), subject.ids(36)
    trained = {name: p for name, p in scheme.named_parameters() if p.requires_grad}
    if not trained:
        raise NotApplicable("trains nothing")
    model = subject.decoder(scheme)
    loss = lambda: torch.nn.functional.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    loss().backward()
    dead = [n for n, p in trained.items() if p.grad is None or not bool(torch.isfinite(p.grad).all()) or not bool(p.grad.any())]
    if dead:
        return Measured(1.0, f"no finite nonzero gradient reaches {', '.join(dead)}")
    step = {n: 1e-6 * torch.randn(p.shape, generator=subject.generator(9), dtype=p.dtype) for n, p in trained.items()}
    expected = sum((p.grad * step[n]).sum().item() for n, p in trained.items())

    def shifted(sign: int) -> float:
        with torch.no_grad():
            for n, p in trained.items():
                p.add_(step[n], alpha=sign)
            found = loss().item()
            for n, p in trained.items():
                p.sub_(step[n], alpha=sign)
        return found

    size = sum((p.grad * step[n]).square().sum().item() for n, p in trained.items()) ** 0.5
    return Measured(abs((shifted(1) - shifted(-1)) / 2 - expected) / size)
