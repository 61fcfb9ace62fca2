"""What a checkpoint says of itself, and what tells it from others."""

from hashlib import sha256
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from lengthen.core import UsageError
from lengthen.core.errors import require_count
from lengthen.hf.request import trained_length

from .amounts import tokens_of
from .trial import FULL, by_layer

FIRST = 16
"""The first L / FIRST tokens are not scored: with so little context they say nothing of lengths."""


def lengths_of(config: PreTrainedConfig, target: str | int, original: int | None) -> tuple[int, int]:
    """(trained, target) in tokens. Raises UsageError for a target that is not above the trained length.

    original: the trained length, where the configuration does not say it, or says it wrongly.
    """
    trained = original if original is not None else _declared(config)
    if trained is None:
        raise UsageError(
            f"The configuration of this {config.model_type} does not say how many tokens it was trained on. Say it: --original 2k, "
            "or original=2048."
        )
    require_count("advise", "original", trained, "tokens")
    tokens = tokens_of(target, trained) if isinstance(target, str) else target
    require_count("advise", "target", tokens, "tokens")
    if tokens <= trained:
        raise UsageError(
            f"This checkpoint was trained on {trained} tokens, and the target is {tokens}: nothing has to be extended. Give a "
            f"target above {trained}, as in 2x."
        )
    return trained, tokens


def _declared(config: PreTrainedConfig) -> int | None:
    if getattr(config, "rope_parameters", None):
        return trained_length(config, FULL if by_layer(config) else None)
    return getattr(config, "max_position_embeddings", None)


def base_of(config: PreTrainedConfig) -> float | None:
    rope = getattr(config, "rope_parameters", None)
    return None if not rope else rope.get("rope_theta", rope.get(FULL, {}).get("rope_theta"))


def require_tokenizer(tokenizer: PreTrainedTokenizerBase | None) -> None:
    if tokenizer is None:
        raise UsageError("The checkpoint has no tokenizer, and text cannot be read without one. Put its files into the folder.")


def about(model: PreTrainedModel, name: str, lengths: tuple[int, int], data: str) -> dict[str, Any]:
    """All that readings of one folder share."""
    return {
        "model": name,
        "weights": fingerprint(model),
        "dtype": str(model.dtype),
        "device": model.device.type,
        "trained": lengths[0],
        "target": lengths[1],
        "data": data,
        "unscored": lengths[0] // FIRST,
    }


def fingerprint(model: PreTrainedModel) -> str:
    """Of names, shapes and some values of all tensors: enough to tell one checkpoint from another."""
    found = sha256()
    for name, tensor in model.state_dict().items():
        flat = tensor.detach().reshape(-1)
        some = flat[:: max(1, flat.numel() // 64)].float().cpu().numpy()
        found.update(f"{name} {tuple(tensor.shape)}".encode() + some.tobytes())
    return found.hexdigest()[:16]
