"""Generation with the cache, in batches, left-padded."""

import math

import torch
from torch import Tensor

from lengthen.core import UsageError
from lengthen.core.errors import require_count

from .decoder import Decoder


@torch.no_grad()
def generate(
    model: Decoder,
    ids: Tensor,
    new_tokens: int,
    *,
    valid: Tensor | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    stop: int | None = None,
    seed: int = 0,
) -> Tensor:
    """int64 [B, T] -> [B, T + N], continued by N <= `new_tokens` tokens; the prompt is read once, then one token at a time.

    valid: bool [B, T], False on the padding that brings shorter prompts to one length; on the left only.
    temperature: logits are divided by it before sampling; 0 takes the most likely token.
    top_k: sample among the k most likely tokens only.
    stop: a row that has produced this token is filled up with it, and generation ends when all rows have.

    Raises UsageError for an empty or right-padded prompt and settings out of range.
    """
    _check(ids, valid, new_tokens, temperature, top_k)
    _check_vocabulary(ids, stop, model.config.vocab)
    training, cache = model.training, model.new_cache()
    generator = torch.Generator(ids.device).manual_seed(seed)
    ended = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    model.eval()
    try:
        out, new = [ids], ids
        for _ in range(new_tokens):
            hidden = model.hidden(new, valid=valid if new is ids else None, cache=cache)
            chosen = _choose(model.head(hidden[:, -1]).float(), temperature, top_k, generator)
            if stop is not None:
                chosen = chosen.masked_fill(ended, stop)
                ended |= chosen == stop
            new = chosen[:, None]
            out.append(new)
            if ended.all():
                break
    finally:
        model.train(training)
    return torch.cat(out, dim=1)


def _check(ids: Tensor, valid: Tensor | None, new_tokens: int, temperature: float, top_k: int | None) -> None:
    if ids.dim() != 2 or 0 in ids.shape:
        raise UsageError(
            f"A prompt must be token ids of shape [batch, tokens] with at least one token, got {tuple(ids.shape)}."
        )
    if valid is not None and (valid.shape != ids.shape or valid.dtype != torch.bool):
        got = f"{valid.dtype} of shape {tuple(valid.shape)}"
        raise UsageError(f"'valid' must be bool, of the shape of the prompt {tuple(ids.shape)}, got {got}.")
    if valid is not None and not valid[:, -1].all():
        row = int((~valid[:, -1]).nonzero()[0])
        raise UsageError(f"Row {row} of the prompt ends in padding, so nothing can follow it. Pad prompts on the left.")
    require_count("generate", "new_tokens", new_tokens, "tokens")
    if top_k is not None:
        require_count("generate", "top_k", top_k, "tokens")
    if not isinstance(temperature, int | float) or not 0 <= temperature < math.inf:
        raise UsageError(f"The 'temperature' of generate must be 0 (most likely token) or above, got {temperature!r}.")


def _check_vocabulary(ids: Tensor, stop: int | None, vocab: int) -> None:
    if ids.dtype not in (torch.int64, torch.int32):
        raise UsageError(f"A prompt must be token ids, int64 or int32, got {ids.dtype}.")
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocab:
        raise UsageError(f"The prompt holds tokens from {low} to {high}, the model's vocabulary is 0 to {vocab - 1}.")
    if stop is not None:
        require_count("generate", "stop", stop, "(a token id)", least=0)
        if stop >= vocab:
            raise UsageError(f"The 'stop' of generate must be a token id from 0 to {vocab - 1}, got {stop}.")


def _choose(logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator) -> Tensor:
    """float [B, V] -> int64 [B]."""
    if temperature == 0:
        return logits.argmax(-1)
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, float("-inf"))
    return torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator).squeeze(1)
