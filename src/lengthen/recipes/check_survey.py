"""`python -m lengthen.recipes.check_survey`: what `lengthen check` finds in public implementations, as a page.

Models are tiny and random, of the family's own default config shrunk in proportion; encodings are the bare modules.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lengthen.conformance.adapters.x_transformers_model import XTransformer
from lengthen.conformance.model.quiet import quiet
from lengthen.conformance.model.suite import check_model
from lengthen.conformance.model.tiny import tiny_model
from lengthen.conformance.model.verdict import Report
from lengthen.conformance.module import check_module
from lengthen.report.check_page import page, read_scripts, unshown

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("LlamaConfig", {}),
    "Llama, dynamic NTK": ("LlamaConfig", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}}),
    "Llama, YaRN": ("LlamaConfig", {"max_position_embeddings": 8192, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 2048}}),
    "Llama, LongRoPE": ("LlamaConfig", {"max_position_embeddings": 8192, "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 2048,
        "short_factor": [1.0] * 64, "long_factor": [1.0 + 3.0 * n / 63 for n in range(64)]}}),
    "Llama, Llama-3 scaling": ("LlamaConfig", {"max_position_embeddings": 131_072, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 8192,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0}}),
    "Mistral": ("MistralConfig", {}),
    "Qwen2": ("Qwen2Config", {}),
    "Qwen3": ("Qwen3Config", {}),
    "Phi-3, LongRoPE": ("Phi3Config", {"max_position_embeddings": 16_384, "original_max_position_embeddings": 4096,
        "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 4096,
        "short_factor": [1.0] * 48, "long_factor": [1.0 + 3.0 * n / 47 for n in range(48)]}}),
    "Gemma": ("GemmaConfig", {}),
    "Gemma 2": ("Gemma2Config", {}),
    "Gemma 3": ("Gemma3TextConfig", {}),
    "Gemma 3, YaRN on full layers": ("Gemma3TextConfig", {"rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 8.0, "original_max_position_embeddings": 32_768,
        "truncate": False}}}),
    "GPT-NeoX": ("GPTNeoXConfig", {}),
    "GPT-2": ("GPT2Config", {}),
    "BLOOM": ("BloomConfig", {}),
    "MPT": ("MptConfig", {}),
    "Falcon": ("FalconConfig", {}),
    "Falcon, ALiBi": ("FalconConfig", {"alibi": True}),
    "T5": ("T5Config", {}),
}  # fmt: skip
"""Families of transformers: the class of the config, and what differs from its defaults."""
X_MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "absolute": ({}, {}),
    "scaled sinusoidal": ({"scaled_sinu_pos_emb": True}, {}),
    "no positions": ({"use_abs_pos_emb": False}, {}),
    "rotary": ({"use_abs_pos_emb": False}, {"rotary_pos_emb": True, "rotary_emb_dim": 32}),
    "xPos": ({"use_abs_pos_emb": False}, {"rotary_xpos": True, "rotary_emb_dim": 32}),
    "ALiBi": ({"use_abs_pos_emb": False}, {"alibi_pos_bias": True}),
    "T5 bias": ({"use_abs_pos_emb": False}, {"rel_pos_bias": True}),
    "dynamic bias": ({"use_abs_pos_emb": False}, {"dynamic_pos_bias": True}),
    "data-dependent ALiBi": ({"use_abs_pos_emb": False}, {"attn_data_dependent_alibi": True}),
    "data-dependent ALiBi per row": (
        {"use_abs_pos_emb": False},
        {"attn_data_dependent_alibi": True, "attn_data_dependent_alibi_per_row": True},
    ),
    "CoPE": ({"use_abs_pos_emb": False}, {"attn_use_cope": True}),
    "polar": ({"use_abs_pos_emb": False}, {"polar_pos_emb": True}),
}
"""Encodings of x-transformers: arguments of the `TransformerWrapper`, and of its `Decoder`."""


def family(name: str, seed: int = 0) -> nn.Module:
    """A tiny random model of a family of transformers."""
    import transformers

    kind, changes = FAMILIES[name]
    return tiny_model(getattr(transformers, kind)(**changes), seed)


def x_model(encoding: str, aged: bool = False, seed: int = 0) -> XTransformer:
    """A tiny random decoder of x-transformers, its matrices twice their initial size, so that positions count."""
    from x_transformers import Decoder, TransformerWrapper

    outer, inner = X_MODELS[encoding]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        layers = Decoder(dim=64, depth=2, heads=4, attn_dim_head=32, **inner)
        model = TransformerWrapper(num_tokens=50, max_seq_len=256, attn_layers=layers, **outer)
        for p in model.parameters():
            p.mul_(2 if p.ndim == 2 else 1)
    return XTransformer(model, x_name(encoding, aged), aged)


def x_name(encoding: str, aged: bool = False) -> str:
    return f"x-transformers Decoder, {encoding}" + (", cache_age" if aged else "")


def modules() -> dict[str, Callable[[], Any]]:
    """Bare encodings of the installed libraries: name -> a function that makes one."""
    import rotary_embedding_torch as rotary
    import transformers
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
    from x_transformers import x_transformers as x

    turned = rotary.RotaryEmbedding
    return {
        "rotary-embedding-torch RotaryEmbedding": partial(turned, 32),
        "rotary-embedding-torch RotaryEmbedding, use_xpos": partial(turned, 32, use_xpos=True),
        "rotary-embedding-torch RotaryEmbedding, use_xpos, seq_before_head_dim": partial(
            turned, 32, use_xpos=True, seq_before_head_dim=True
        ),
        "transformers LlamaRotaryEmbedding": lambda: LlamaRotaryEmbedding(transformers.LlamaConfig()),
        "x-transformers RotaryEmbedding": partial(x.RotaryEmbedding, 32),
        "x-transformers RotaryEmbedding, use_xpos": partial(x.RotaryEmbedding, 32, use_xpos=True),
        "x-transformers PolarEmbedding": partial(x.PolarEmbedding, 32, 4),
        "x-transformers AlibiPositionalBias": partial(x.AlibiPositionalBias, 8),
        "x-transformers RelativePositionBias": partial(x.RelativePositionBias, 4.0, causal=True),
        "x-transformers DynamicPositionBias": partial(x.DynamicPositionBias, 16, heads=4, depth=2),
        "x-transformers AbsolutePositionalEmbedding": partial(x.AbsolutePositionalEmbedding, 32, 512),
        "x-transformers ScaledSinusoidalEmbedding": partial(x.ScaledSinusoidalEmbedding, 32),
    }


def surveyed() -> dict[str, Callable[..., Report]]:
    """Every model of the page, by name: a function that checks it, with keywords of `check_model`."""
    found = {f"transformers {n}": partial(_family_report, n) for n in FAMILIES}
    for encoding in X_MODELS:
        found[x_name(encoding)] = partial(_x_report, encoding, False)
        found[x_name(encoding, True)] = partial(_x_report, encoding, True)
    return found


def encodings() -> dict[str, Callable[..., Report]]:
    """Every bare encoding of the page, by name: a function that checks it, with keywords of `check_module`."""
    return {name: partial(check_module, make, name=name) for name, make in modules().items()}


def _family_report(name: str, **how: Any) -> Report:
    return check_model(family(name), name=f"transformers {name}", **how)


def _x_report(encoding: str, aged: bool, **how: Any) -> Report:
    """With `cache_age` only decoding in chunks is called otherwise, so only that is checked again."""
    return check_model(x_model(encoding, aged), **{**({"only": ["cached_chunks"]} if aged else {}), **how})


@contextmanager
def silence() -> Iterator[None]:
    """Without what the libraries say while models are made; afterwards all is as it was."""
    import transformers  # noqa: F401 (so that it can be kept quiet)
    from loguru import logger

    logger.disable("x_transformers")
    try:
        with quiet():
            yield
    finally:
        logger.enable("x_transformers")


def main(arguments: list[str] | None = None) -> int:
    """Writes the page; 0 also where checks failed, as the page is what they are for."""
    parser = argparse.ArgumentParser(prog="python -m lengthen.recipes.check_survey", description=__doc__)
    parser.add_argument("--scripts", type=Path, nargs="+", required=True, help="folders of scripts that reproduce failures")
    parser.add_argument("--out", type=Path, required=True, help="the page")
    parser.add_argument("--only", nargs="+", default=(), help="parts of names of subjects; all by default")
    asked = parser.parse_args(arguments)
    wanted = lambda name: not asked.only or any(part in name for part in asked.only)
    parts = [{n: run for n, run in group.items() if wanted(n)} for group in (surveyed(), encodings())]
    with silence():
        models, bare = ([_reported(name, run) for name, run in group.items()] for group in parts)
    print("\r\x1b[K", end="", file=sys.stderr)
    scripts = read_scripts(asked.scripts)
    for library, check in unshown([*models, *bare], scripts):
        print(f"No script reproduces {check} of {library}.", file=sys.stderr)
    command = f"python -m lengthen.recipes.check_survey --scripts {' '.join(map(str, asked.scripts))} --out {asked.out}"
    asked.out.write_text(page(models, bare, scripts, command, date.today()), encoding="utf-8")
    return 0


def _reported(name: str, run: Callable[..., Report]) -> Report:
    print(f"\r\x1b[K{name}", end="", file=sys.stderr, flush=True)
    return run()


if __name__ == "__main__":
    sys.exit(main())
