"""A small random model of somebody's config: the same rules and proportions, seconds instead of minutes."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from lengthen.core.errors import UsageError

HEAD, HEADS, VOCAB, TRAINED, LAYERS = 16, 4, 160, 48, 8
"""Channels per head, query heads, tokens of the vocabulary, tokens of the trained length, most layers."""
GAIN = 1.6
"""Deviation of a weight times the square root of its inputs: attention is peaked, so positions count."""
LENGTHS = (
    "max_position_embeddings",
    "original_max_position_embeddings",
    "sliding_window",
    "attention_chunk_size",
    "max_seq_len",
    "local_attention_window",
)
"""Settings in tokens; they shrink by one scale, so that each rule still switches where it did in proportion."""
SIZES = {
    "intermediate_size": 96,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 48,
    "ffn_dim": 96,
    "n_inner": 96,
    "ffn_hidden_size": 96,
    "d_ff": 96,
    "d_kv": HEAD,
    "num_local_experts": 4,
    "num_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": HEAD,
    "qk_nope_head_dim": HEAD,
    "qk_head_dim": 2 * HEAD,
    "v_head_dim": 2 * HEAD,
    "vocab_size_per_layer_input": VOCAB,
    "hidden_size_per_layer_input": HEAD,
    "query_pre_attn_scalar": HEAD,
    "rotary_dim": HEAD,
    "max_window_layers": 1,
}
"""Other sizes, where a config has them and they are larger."""


def tiny_model(config: Any, seed: int = 0) -> nn.Module:
    """A random causal language model (or encoder-decoder) of a shrunk copy of a transformers config, in evaluation mode.

    Raises UsageError where the family has no such model, or the shrunk config does not build.
    """
    small = tiny_config(config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            model = kind_of(small).from_config(small, dtype=torch.float32)
        except Exception as e:
            raise _unbuildable(config, f"{type(e).__name__}: {' '.join(str(e).split())[:300]}") from e
    return stir(model, seed).eval()


def _unbuildable(config: Any, why: str) -> UsageError:
    return UsageError(
        f"No tiny model could be made of this {type(config).__name__} ({why}). Check the checkpoint itself, without --tiny."
    )


def kind_of(config: Any) -> Any:
    """The class that makes models of a config: of an encoder-decoder, an encoder, or a causal language model."""
    from transformers import MODEL_FOR_MASKED_LM_MAPPING, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

    if config.is_encoder_decoder:
        return AutoModelForSeq2SeqLM
    encodes = type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False)
    return AutoModelForMaskedLM if encodes else AutoModelForCausalLM


@torch.no_grad()
def stir(model: nn.Module, seed: int) -> nn.Module:
    """Draws every matrix anew, with a deviation of `GAIN` over the root of its inputs; embeddings with deviation 1."""
    generator = torch.Generator().manual_seed(seed)
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for p in model.parameters():
        if p.dim() >= 2:
            p.normal_(std=1.0 if id(p) in tables else GAIN * p.shape[-1] ** -0.5, generator=generator)
    return model


def tiny_config(config: Any) -> Any:
    """A shrunk copy of a transformers config; of its text part where it has several."""
    text = config.get_text_config()
    given = text.to_dict()
    heads, groups = _heads(text)
    sizes = {
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "hidden_size": heads * HEAD,
        "num_hidden_layers": _layers(given, text),
        "vocab_size": VOCAB,
        **SIZES,
    }
    changed = {}
    for name, value in sizes.items():
        own = text.attribute_map.get(name, name)
        if _larger(given.get(own), value):
            changed[own] = value
    changed |= _layer_lists(given, sizes["num_hidden_layers"]) | _lengths(given)
    if given.get("head_dim") is not None:
        changed["head_dim"] = HEAD
    changed |= {n: _special(given[n]) for n in ("pad_token_id", "bos_token_id", "eos_token_id") if n in given}
    made = given | changed
    return _built(type(text), made | _ropes(given, made))


def _larger(value: Any, bound: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > bound


def _special(token: Any) -> int | None:
    """A special token of a config that lies within the small vocabulary, or none."""
    return token if isinstance(token, int) and 0 <= token < 3 else None


def _heads(config: Any) -> tuple[int, int]:
    """Query heads and key/value heads in the proportion of the config."""
    heads = getattr(config, "num_attention_heads", None)
    if heads is None:
        raise _unbuildable(config, "it has no attention heads")
    groups = getattr(config, "num_key_value_heads", None)
    share = 1 if groups is None else max(1, heads // groups)
    if share == 1:
        return (min(HEADS, heads),) * 2
    return (HEADS, max(1, HEADS // share)) if share <= HEADS else (HEADS, 1)


def _layers(given: Mapping[str, Any], config: Any) -> int:
    """Enough layers for each kind of layer to be there, two at least."""
    kinds = _kinds(given)
    if not kinds:
        return min(2, config.num_hidden_layers)
    first = max(kinds.index(k) for k in set(kinds)) + 1
    return min(max(2, first), max(LAYERS, first), len(kinds))


def _kinds(given: Mapping[str, Any]) -> list[Any]:
    """What the config says of each layer, in one list."""
    lists = [
        given[n] for n in ("layer_types", "no_rope_layers", "mlp_layer_types") if isinstance(given.get(n), list) and given[n]
    ]
    return list(zip(*lists, strict=False)) if lists else []


def _layer_lists(given: Mapping[str, Any], layers: int) -> dict[str, Any]:
    names = ("layer_types", "no_rope_layers", "mlp_layer_types")
    return {n: given[n][:layers] for n in names if isinstance(given.get(n), list)}


def scale_of(given: Mapping[str, Any]) -> float:
    """Tokens of the trained length over `TRAINED`, at least 1."""
    ropes = _nested(given)
    found = [r.get("original_max_position_embeddings") for r in (*ropes.values(), given)]
    known = [n for n in (*found, *(given.get(n) for n in ("max_position_embeddings", "n_positions", "max_seq_len"))) if n]
    return max(1.0, known[0] / TRAINED) if known else 1.0


def shrunk(tokens: int, scale: float) -> int:
    """A length in tokens after shrinking, at least 8."""
    return tokens if tokens <= 8 else max(8, round(tokens / scale))


def _lengths(given: Mapping[str, Any]) -> dict[str, Any]:
    scale = scale_of(given)
    names = [n for n in (*LENGTHS, "n_positions") if _larger(given.get(n), 8)]
    return {n: shrunk(given[n], scale) for n in names}


def _nested(given: Mapping[str, Any]) -> dict[Any, dict[str, Any]]:
    """The rope parameters by layer type; None: one set for all."""
    ropes = given.get("rope_parameters")
    if not ropes:
        return {}
    inner = {k: v for k, v in ropes.items() if isinstance(v, dict)}
    return inner if inner else {None: ropes}


def _ropes(given: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    """The rope parameters with their length shrunk, and lists of factors thinned out to the pairs that are left."""
    scale, found = scale_of(given), {}
    for kind, rope in _nested(given).items():
        new = dict(rope)
        if _larger(new.get("original_max_position_embeddings"), 8):
            new["original_max_position_embeddings"] = shrunk(new["original_max_position_embeddings"], scale)
        for name in ("short_factor", "long_factor"):
            if isinstance(new.get(name), list):
                new[name] = _thinned(new[name], pairs(given, made))
        found[kind] = new
    if not found:
        return {}
    return {"rope_parameters": found.get(None, found)}


def pairs(given: Mapping[str, Any], made: Mapping[str, Any]) -> int:
    """Channel pairs that turn in a small head: the same share as in a large one."""
    share = next((r["partial_rotary_factor"] for r in _nested(given).values() if r.get("partial_rotary_factor")), 1.0)
    head = made.get("head_dim") or made["hidden_size"] // made["num_attention_heads"]
    return int(head * share) // 2


def _thinned(factors: list[float], count: int) -> list[float]:
    """`count` of the factors, evenly spread, the first and the last among them."""
    last = len(factors) - 1
    return [factors[round(n * last / max(1, count - 1))] for n in range(count)]


def _built(kind: type, values: Mapping[str, Any]) -> Any:
    """The config of these values; those that belong to no argument of it are left out."""
    noted = ("model_type", "transformers_version", "architectures", "_name_or_path", "auto_map", "quantization_config", "dtype")
    names = inspect.signature(kind.__init__).parameters
    return kind(**{k: v for k, v in values.items() if k not in noted and (k in names or "kwargs" in names)})
