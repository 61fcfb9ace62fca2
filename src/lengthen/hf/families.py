"""What a model of transformers does with positions that its configuration does not say."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Facts = Mapping[str, Any]
"""A configuration as `to_dict()` gives it."""


def _everywhere(facts: Facts) -> list[bool]:
    return [True] * facts["num_hidden_layers"]


def _listed(facts: Facts) -> list[bool]:
    """`no_rope_layers` holds 1 where a layer does turn (sic)."""
    return [bool(turns) for turns in facts["no_rope_layers"]]


def _sliding(facts: Facts) -> list[bool]:
    return [kind == "sliding_attention" for kind in facts["layer_types"]]


def _sliding_if_any(facts: Facts) -> list[bool]:
    return _everywhere(facts) if facts["sliding_window"] is None else _sliding(facts)


def _always(facts: Facts) -> bool:
    return True


def _never(facts: Facts) -> bool:
    return False


@dataclass(frozen=True)
class Family:
    """One model type, read in the code of transformers 5.24."""

    interleaved: Callable[[Facts], bool] = _never
    """Whether channels (2i, 2i+1) turn together, and not (i, i + R/2)."""
    turned: Callable[[Facts], list[bool]] = _everywhere
    """For each layer, whether it turns at all."""
    softmax_scale: bool = False
    """Whether `mscale_all_dim` also multiplies the softmax scale of the whole head."""
    head_size: tuple[str, ...] = ("head_dim",)
    """Entries whose sum is the size of a head."""
    extra: tuple[str, ...] = ()
    """Entries of rope_parameters that the frequencies do not depend on."""
    remark: str | None = None
    """What else the model does with positions."""


_LATENT = ("qk_nope_head_dim", "qk_rope_head_dim")
_ORDINARY = (
    *("llama", "mistral", "mixtral", "ministral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "phi", "phi3", "gemma", "gemma2"),
    *("gemma3_text", "olmo", "olmo2", "olmo3", "gpt_neox", "stablelm", "granite", "starcoder2", "nemotron", "gpt_oss"),
    *("seed_oss", "arcee", "apertus", "glm4_moe"),
)
_NEIGHBOURS = ("cohere", "glm", "glm4", "ernie4_5", "helium")

FAMILIES: dict[str, Family] = {
    **dict.fromkeys(_ORDINARY, Family()),
    **dict.fromkeys(_NEIGHBOURS, Family(_always)),
    "smollm3": Family(turned=_listed),
    "exaone4": Family(turned=_sliding_if_any),
    "cohere2": Family(_always, turned=_sliding),
    "deepseek_v2": Family(_always, softmax_scale=True, head_size=_LATENT),
    "deepseek_v3": Family(lambda facts: facts["rope_interleave"], softmax_scale=True, head_size=_LATENT),
    "llama4_text": Family(
        _always,
        turned=_listed,
        remark="Layers that do not turn multiply queries by 1 + attn_scale ln(1 + floor((p + 1) / floor_scale)), if "
        "attn_temperature_tuning is on.",
    ),
    "ministral3": Family(
        extra=("llama_4_scaling_beta", "max_position_embeddings"),
        remark="Queries are multiplied by 1 + llama_4_scaling_beta ln(1 + floor(p / original_max_position_embeddings)).",
    ),
}
"""By `model_type`."""
