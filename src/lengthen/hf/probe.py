"""The proof before a swap: what a model says of two short texts, one of them padded, at once and through its cache."""

import inspect

import torch
from torch import Tensor
from transformers import PreTrainedModel

from lengthen.core import Refusal

from .swap import evaluating

TOKENS, PADDING, FIRST = 24, 5, 15
"""Length of the probe, padding on the left of its second row, and how much of it is read before the cache is used."""
EXACT = 1e-4
"""Largest difference of logits, in units of their deviation, in float32: its rounding, and transformers' float32 angles."""
NOISE = 4.0
"""In half precision: how many times what a model's own answers differ by, read at once and in two pieces."""
TOO_NOISY = 0.5
"""Units of the deviation: noise that a wrong position could hide in."""


def answers(model: PreTrainedModel) -> Tensor:
    """float64 [2, N, V]: logits at every real token, read at once and in two pieces."""
    g = torch.Generator().manual_seed(0)
    ids = torch.randint(1, model.config.vocab_size, (2, TOKENS), generator=g).to(model.device)
    mask = torch.ones_like(ids)
    mask[1, :PADDING] = 0
    ids = ids * mask
    cache = next(n for n in ("cache", "past_key_values") if n in inspect.signature(model.forward).parameters)
    with evaluating(model):
        whole = model(ids, attention_mask=mask, use_cache=False)[0]
        first = model(ids[:, :FIRST], attention_mask=mask[:, :FIRST], use_cache=True)
        rest = model(ids[:, FIRST:], attention_mask=mask, use_cache=True, **{cache: first[cache]})
    pieces = torch.cat((first[0], rest[0]), dim=1)
    return torch.stack((whole[mask.bool()], pieces[mask.bool()])).double()


def gap(found: Tensor, expected: Tensor) -> float:
    """Largest difference, in units of the deviation of what was expected; infinite where something is not a number."""
    worst = (found - expected).abs().max() / expected.std()
    return worst.nan_to_num(nan=float("inf")).item()


def allowed(model: PreTrainedModel, expected: Tensor) -> float:
    """How far a faithful copy may be from these answers. Raises Refusal where rounding alone could hide a fault."""
    if model.dtype in (torch.float32, torch.float64):
        return EXACT
    most = max(EXACT, NOISE * gap(expected[1], expected[0]))
    if most > TOO_NOISY:
        raise Refusal(
            f"{type(model).__name__} in {model.dtype} gives logits that move by {most / NOISE:.2f} of their deviation when a text "
            "is read in two pieces, so no copy of it could be proven. Load it in float32 to extend it, and cast it afterwards."
        )
    return most
