"""A check that every rope parameter that is set has a part in what runs."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .check import NotApplicable
from .hugging_face import ropes_of
from .register import model_check
from .rope_modules import RopeModule, config_of, rope_modules, spectra_of
from .subject import Subject
from .verdict import Measured

FACTORS = (1.5, 4.0, 20.0)
"""What a setting is multiplied by, one after another, until something changes."""
NAMES = ("rope_type", "type")
"""Which rule it is; not a parameter of it."""
OVERRULED = {"factor": "attention_factor", "mscale": "attention_factor", "mscale_all_dim": "attention_factor"}
"""Settings of LongRoPE and YaRN that mean nothing beside another one."""
NEUTRAL = {"partial_rotary_factor": 1.0}
"""Values that transformers itself writes into every config."""


@model_check(
    "settings_run",
    "settings",
    meaning="A setting of the config is ignored, so the model runs with other frequencies than it was trained with or extended to.",
    cause="The key is read in another place (beside the layer types, at the top of the config), or not at all.",
)
def settings_run(subject: Subject) -> Measured:
    """Each rope parameter that the config sets has an effect: counts those that can be changed without any."""
    config = config_of(subject)
    modules, seen, ignored = rope_modules(subject), 0, []
    for kind, rope in ropes_of(config).items():
        module = next((m for m in modules if m.layer_type == kind), None)
        for name in () if module is None else settings(rope, len(module.inv_freq)):
            seen += 1
            if not any(_differ(module, config, changed) for changed in changes(config, kind, name)):
                ignored.append(name if kind is None else f"{name} of {kind}")
    if not seen:
        raise NotApplicable("its config sets no rope parameter")
    return Measured(float(len(ignored)), 0.0, f"set and ignored: {', '.join(ignored)}" if ignored else "")


def settings(rope: dict[str, Any], pairs: int) -> list[str]:
    """The parameters that are set, and meant to have a part. A single pair turns by one radian per token at any base."""
    set_ = {k: v for k, v in rope.items() if v is not None and k not in NAMES and NEUTRAL.get(k) != v}
    overruled = {k for k, by in OVERRULED.items() if by in set_ and rope.get("rope_type") in ("yarn", "longrope")}
    if rope.get("rope_type") == "yarn":
        overruled.discard("factor")
    return [k for k in set_ if k not in overruled and (k != "rope_theta" or pairs > 1)]


def changes(config: Any, kind: str | None, name: str) -> Iterator[Any]:
    """Copies of the config in which only this parameter is another."""
    for by in FACTORS:
        other = copy.deepcopy(config)
        rope = ropes_of(other)[kind]
        rope[name] = _changed(rope[name], by)
        # Phi-3 keeps its original length at the top of the config, and that one counts.
        if name == "original_max_position_embeddings" and getattr(config, name, None) is not None:
            setattr(other, name, rope[name])
        yield other


def _changed(value: Any, by: float) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return [_changed(v, by) for v in value]
    return round(value * by) if isinstance(value, int) else value * by if by * value > 1 or value > 1 else value / by


def _differ(module: RopeModule, config: Any, changed: Any) -> bool:
    """Whether the tables of another config differ anywhere, for texts from 4 tokens to eight times the known lengths."""
    for tokens in _lengths(config):
        before, after = (_table(module, c, tokens) for c in (config, changed))
        if before.shape != after.shape or not torch.allclose(before, after, rtol=0, atol=1e-6):
            return True
    return False


def _lengths(config: Any) -> list[int]:
    known = [config.max_position_embeddings, *(r.get("original_max_position_embeddings") for r in ropes_of(config).values())]
    return sorted({4, *(round(n * by) for n in known if n for by in (1, 1.25, 8))})


def _table(like: RopeModule, config: Any, tokens: int) -> Tensor:
    """The table of a new module of that config: a few positions of a text of `tokens` tokens."""
    made = type(like.module)(copy.deepcopy(config))
    rope = next(r for r in spectra_of(like.name, made) if r.layer_type == like.layer_type)
    return rope.table(torch.linspace(0, tokens - 1, 4).round().long(), torch.float32)
