"""What servers make of their entries and flags: their arithmetic once more, in float64, from reading their source.

vLLM 0.33.0 and SGLang 0.5.23: get_rope and the classes behind it. llama.cpp since pull request 18006: llama_context, the model
loader, ggml_rope_yarn_corr_dims and rope_yarn of the CPU kernel. Each gives (radians per token [R/2], multiplier of queries
and keys alike) for a text of `tokens`.
"""

import math

import numpy as np


def geometric(base: float, size: int) -> np.ndarray:
    return 1.0 / base ** (np.arange(0, size, 2) / size)


def ramped(entries: dict, size: int) -> np.ndarray:
    """YaRN in either Python server: a mask of what is kept, over pair indices."""
    base, factor, original = entries["rope_theta"], entries["factor"], entries["original_max_position_embeddings"]
    at = lambda turns: size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))
    low, high = at(entries.get("beta_fast", 32)), at(entries.get("beta_slow", 1))
    if entries.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    kept = 1 - np.clip((np.arange(size // 2) - low) / ((high - low) if high != low else 0.001), 0, 1)
    plain = geometric(base, size)
    return plain / factor * (1 - kept) + plain * kept


def llama3(entries: dict, size: int) -> np.ndarray:
    plain = geometric(entries["rope_theta"], size)
    length, low, high = (entries[k] for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"))
    wave = 2 * math.pi / plain
    smooth = (length / wave - low) / (high - low)
    between = (1 - smooth) * plain / entries["factor"] + smooth * plain
    return np.where(wave < length / high, plain, np.where(wave > length / low, plain / entries["factor"], between))


def mscale(factor: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * math.log(factor) + 1.0


def longrope(entries: dict, size: int, tokens: int, maximum: int) -> tuple[np.ndarray, float]:
    """attention_factor is not read; without short_mscale and long_mscale, the lengths give the multiplier."""
    original = entries["original_max_position_embeddings"]
    default = math.sqrt(1 + math.log(maximum / original) / math.log(original)) if maximum > original else 1.0
    which = "long" if tokens > original else "short"
    factors = np.array(entries[f"{which}_factor"])
    return geometric(entries["rope_theta"], size) / factors, entries.get(f"{which}_mscale", default)


def vllm(overrides: dict, head_size: int, tokens: int) -> tuple[np.ndarray, float]:
    entries, maximum = overrides["rope_parameters"], overrides["max_position_embeddings"]
    size, kind = int(head_size * entries.get("partial_rotary_factor", 1.0)), entries["rope_type"]
    if kind == "yarn":
        default = mscale(entries["factor"])
        return ramped(entries, size), entries.get("attention_factor", default)
    if kind == "longrope":
        return longrope(entries, size, tokens, maximum)
    plain = {"default": geometric, "linear": lambda b, s: geometric(b, s) / entries["factor"]}
    return llama3(entries, size) if kind == "llama3" else plain[kind](entries["rope_theta"], size), 1.0


def sglang(overrides: dict, head_size: int, tokens: int) -> tuple[np.ndarray, float]:
    """The whole head is turned; YaRN's multiplier is computed and multiplied by attn_factor."""
    entries = overrides["rope_parameters"]
    if entries["rope_type"] == "yarn":
        return ramped(entries, head_size), mscale(entries["factor"]) * entries.get("attn_factor", 1.0)
    return vllm({**overrides, "rope_parameters": {**entries, "partial_rotary_factor": 1.0}}, head_size, tokens)


def llama_cpp(file: dict, flags: dict, table: np.ndarray | None = None) -> tuple[np.ndarray, float]:
    """file: entries without the architecture, overrides among them. flags: by name, without dashes."""
    kind = flags.get("rope-scaling", file.get("rope.scaling.type", "linear"))
    base = float(flags.get("rope-freq-base", file["rope.freq_base"]))
    factor = float(flags.get("rope-scale", file.get("rope.scaling.factor", 1.0))) if kind != "none" else 1.0
    original = int(flags.get("yarn-orig-ctx", file.get("rope.scaling.original_context_length", file["context_length"])))
    size, scale = file["rope.dimension_count"], 1 / factor
    turn = geometric(base, size) / (table if table is not None else 1.0)
    ext = float(flags.get("yarn-ext-factor", 1.0 if kind == "yarn" else 0.0))
    multiplier = 1.0
    if ext != 0:
        at = lambda turns: size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))
        low = max(0.0, math.floor(at(float(flags.get("yarn-beta-fast", 32.0)))))
        high = min(size - 1.0, math.ceil(at(float(flags.get("yarn-beta-slow", 1.0)))))
        mix = ext * (1 - np.clip((np.arange(size // 2) - low) / max(0.001, high - low), 0, 1))
        turned = turn * scale * (1 - mix) + turn * mix
        # --yarn-attn-factor is overwritten by get_mscale / (1 + 0.1 ln s), and the kernel multiplies by 1 + 0.1 ln s again.
        multiplier = mscale(factor) / (1 + 0.1 * math.log(factor)) * (1 + 0.1 * math.log(factor))
    else:
        turned = turn * scale
    return turned, multiplier * file.get("rope.scaling.attn_factor", 1.0)
