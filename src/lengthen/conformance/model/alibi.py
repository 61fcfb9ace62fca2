"""Checks of ALiBi biases: from key to key they fall by the slope, however far the text goes."""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .check import NotApplicable
from .register import model_check
from .rope_modules import config_of
from .subject import Subject
from .verdict import Measured, worst

TOKENS = (512, 4096, 65_536)
"""Lengths whose last keys are looked at."""
LAST = 64
"""Keys."""
SLOPE_ERROR = 0.02
"""Relative. float32 at 65,536 keeps a step of 1/2 to 0.4%, and a slope rounded to bfloat16 is off by 0.4%."""
MEANING = "Neighbouring keys far into a text share one bias, so the model cannot tell their order; nothing is raised."
Builder = Callable[[Any, Any, int, torch.dtype], Tensor]


def _from_mask(code: Any, config: Any, tokens: int, dtype: torch.dtype) -> Tensor:
    return code.build_alibi_tensor(torch.ones(1, tokens, dtype=torch.long), config.num_attention_heads, dtype)


def _mpt(code: Any, config: Any, tokens: int, dtype: torch.dtype) -> Tensor:
    return code.build_mpt_alibi_tensor(config.num_attention_heads, tokens, alibi_bias_max=config.attn_config.alibi_bias_max)


BUILDERS: dict[str, Builder] = {"bloom": _from_mask, "falcon": _from_mask, "mpt": _mpt}
"""Model type -> how its own code makes the biases of all keys, for hidden states of a type."""


def biases(subject: Subject, tokens: int, dtype: torch.dtype) -> Tensor:
    """float64 [H, T]. Raises NotApplicable where the model has none, or makes them in a way that is not known."""
    config = config_of(subject)
    asked = {"bloom": True, "falcon": getattr(config, "alibi", False)}
    if "attn_config" in vars(config):
        asked["mpt"] = config.attn_config.alibi
    if not asked.get(config.model_type, False):
        raise NotApplicable("it has no ALiBi biases whose making is known")
    code = sys.modules[type(subject.model).__module__]
    return BUILDERS[config.model_type](code, config, tokens, dtype).reshape(config.num_attention_heads, tokens).double()


def steps(subject: Subject, dtype: torch.dtype) -> Measured:
    """The relative error of the steepest head's fall from key to key: over the last keys, against the first two."""
    found = []
    for tokens in TOKENS:
        bias = biases(subject, tokens, dtype)
        slopes = (bias[:, 1] - bias[:, 0]) if bool((bias[:, 0] == 0).all()) else bias[:, -1] - bias[:, -2]
        falls = bias[:, -LAST:].diff(dim=1)
        error = (falls / slopes[:, None] - 1).abs().max().item()
        tied = (falls == 0).double().mean().item()
        found.append(Measured(error, SLOPE_ERROR, f"keys before {tokens:,}: {tied:.0%} of neighbours share a bias"))
    return worst(found)


@model_check(
    "alibi_bias",
    "precision",
    meaning=MEANING,
    cause="Slopes are rounded to bfloat16 before they are multiplied with the index of the key.",
)
def alibi_bias(subject: Subject) -> Measured:
    """In float32 the biases of far neighbouring keys differ by the slope, to 2%."""
    return steps(subject, torch.float32)


@model_check(
    "alibi_bias_bfloat16",
    "precision",
    meaning=MEANING,
    cause="Slope times absolute key index is stored in the type of the hidden states; bfloat16 holds whole numbers up to 256.",
)
def alibi_bias_bfloat16(subject: Subject) -> Measured:
    """For bfloat16 hidden states the biases of far neighbouring keys differ by the slope, to 2%."""
    return steps(subject, torch.bfloat16)
