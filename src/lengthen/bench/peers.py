"""Whole models to measure against: ours with plain attention, x-transformers', and transformers' Llama."""

from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthen.core import LayerCache, Layout, Refusal, UsageError, parse
from lengthen.models import Decoder, DecoderConfig, make_decoder

TEN_MILLION = DecoderConfig(layers=6, heads=6, width=384)
"""10.7 million parameters, heads of 64 channels."""


class PlainAttention(nn.Module):
    """PyTorch's causal attention between the same projections: no scheme, no plan, no cache."""

    def __init__(self, other: nn.Module):
        super().__init__()
        self.size, self.sides = other.size, (other.heads, other.groups, other.groups)
        self.qkv, self.out, self.scheme = other.qkv, other.out, other.scheme

    def forward(self, x: Tensor, layout: Layout, cache: LayerCache | None, backend: str | None) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (-1, self.size)).transpose(1, 2)
        q, k, v = qkv.split(self.sides, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        return self.out(y.transpose(1, 2).flatten(2))


def plain_causal(config: DecoderConfig, length: int) -> Decoder:
    """The decoder without positions, its attention replaced by PyTorch's."""
    if config.qk_norm:
        raise UsageError("Plain attention has no norms of queries and keys. Use a preset without 'qk_norm'.")
    model = make_decoder(config, "nope", length)
    for block in model.blocks:
        block.attention = PlainAttention(block.attention)
    return model


ENCODINGS = {
    # The peer turns half of each head unless told otherwise; lengthen turns all of it.
    "rope": lambda head: {"rotary_pos_emb": True, "rotary_emb_dim": head},
    "xpos": lambda head: {"rotary_pos_emb": True, "rotary_xpos": True, "rotary_emb_dim": head},
    "alibi": lambda head: {"alibi_pos_bias": True},
    "t5": lambda head: {"rel_pos_bias": True},
    "nope": lambda head: {},
}
"""What the same encoding is called in x-transformers."""


def x_transformers(config: DecoderConfig, method: str, length: int, flash: bool) -> nn.Module:
    """x-transformers' decoder with the sizes of `config`: RMSNorm, SwiGLU, no biases, tied embeddings, no dropout.

    Raises Refusal where it is not installed, has no such encoding, or cannot compute it with `flash`.
    """
    name = parse(method)[0][0].name
    if find_spec("x_transformers") is None:
        raise Refusal("x-transformers is not installed. Get it with: pip install 'lengthen[bench]'")
    if name not in ENCODINGS or "+" in method:
        raise Refusal(f"x-transformers has no counterpart of {method!r} here; there is one of {', '.join(sorted(ENCODINGS))}.")
    from x_transformers import Decoder as Layers
    from x_transformers import TransformerWrapper

    try:
        layers = Layers(attn_flash=flash, **_sizes(config), **ENCODINGS[name](config.head_channels))
    except AssertionError as error:
        raise Refusal(f"x-transformers refuses {name} with attn_flash={flash}: {error}.") from None
    return TransformerWrapper(
        num_tokens=config.vocab,
        max_seq_len=length,
        attn_layers=layers,
        use_abs_pos_emb=False,
        tie_embedding=config.tied,
    )


def _sizes(config: DecoderConfig) -> dict:
    return {
        "dim": config.width,
        "depth": config.layers,
        "heads": config.heads,
        "attn_kv_heads": config.kv_heads,
        "attn_dim_head": config.head_channels,
        "use_rmsnorm": True,
        "ff_glu": True,
        "ff_swish": True,
        "ff_no_bias": True,
        "ff_mult": config.hidden_channels / config.width,
        "verbose": False,
    }


SMOLLM2 = DecoderConfig(vocab=49152, layers=30, heads=9, groups=3, width=576, hidden=1536)
"""The sizes of SmolLM2-135M (arXiv:2502.02737)."""
SMOLLM2_BASE = 100000.0
"""Its rotary base."""


def llama(config: DecoderConfig, dtype: torch.dtype, length: int) -> nn.Module:
    """transformers' Llama with the sizes of `config` and random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = LlamaConfig(
        vocab_size=config.vocab,
        hidden_size=config.width,
        intermediate_size=config.hidden_channels,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_channels,
        max_position_embeddings=length,
        tie_word_embeddings=config.tied,
        rope_parameters={"rope_type": "default", "rope_theta": SMOLLM2_BASE},
        attn_implementation="sdpa",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(sizes).to(dtype).eval()
