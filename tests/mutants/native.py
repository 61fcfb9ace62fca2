"""Bugs in what the native kernel is told: its table, its intervals, its knots, its merging."""

from unittest.mock import patch

import torch

from lengthen.backends import columns
from lengthen.backends.native import backend, lower
from lengthen.core import build

from .planted import Mutant
from .terms import alibi, buckets


def spoilt(where, name, spoil):
    """The function `name` with its result changed."""
    sound = getattr(where, name)
    return lambda: patch.object(where, name, lambda *given: spoil(sound(*given), *given))


def one_slot_off(made, *_):
    table, warp = made
    return table.roll(1, 1), warp


def in_nats(made, *_):
    table, warp = made
    return table / lower._LOG2E, warp


def one_key_less(seen, *_):
    return torch.where(seen[..., :1] + 1 < seen[..., 1:], seen - torch.tensor([0, 1], dtype=seen.dtype), seen)


def knots_two_columns_early(edges, *_):
    return edges - 2


def one_factor_for_all(made, *_):
    psi, factor, *rest = made
    return psi, factor.mean(1, keepdim=True).expand_as(factor).contiguous(), *rest


def plain_mean(parts):
    outs, sizes = zip(*parts, strict=True)
    return torch.stack(outs).mean(0), torch.stack(sizes).amax(0)


def built(spec):
    return lambda shape: build(spec, shape)


def native(name, make, machinery):
    return Mutant(name, "backends", make, make, machinery=machinery)


MUTANTS = (
    native("table one slot off", alibi, spoilt(lower, "_added", one_slot_off)),
    native("table in nats", buckets, spoilt(lower, "_added", in_nats)),
    native("intervals end one key early", alibi, spoilt(columns, "_columns", one_key_less)),
    native("knots two columns early", built("fire"), spoilt(lower, "_edges", knots_two_columns_early)),
    native("one factor for all rows", built("fire"), spoilt(lower, "_warp", one_factor_for_all)),
    native("branches merged by their mean", built("rope+rerope:window=8"), lambda: patch.object(backend, "_merge", plain_mean)),
)
