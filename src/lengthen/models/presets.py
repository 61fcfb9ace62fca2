"""Sizes by name, from the demo's 0.1M parameters to 125M."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from lengthen.core import build_layers
from lengthen.core.errors import unknown

from .decoder import Decoder, DecoderConfig

PRESETS = {
    "tiny": DecoderConfig(layers=2, heads=4, width=64),
    "mini": DecoderConfig(layers=4, heads=4, width=128),
    "small": DecoderConfig(layers=6, heads=8, width=256),
    "medium": DecoderConfig(layers=8, heads=8, width=512),
    "base": DecoderConfig(layers=12, heads=12, width=768),
}
"""tiny 0.1M, mini 0.8M, small 5M, medium 25M, base 85M parameters before the embedding (125M with a 50k vocabulary)."""


def preset(name: str, **changes) -> DecoderConfig:
    """The sizes of that name, with fields replaced."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return replace(PRESETS[name], **changes)


def make_decoder(config: DecoderConfig, specs: Sequence[str] | str, train_length: int, seed: int = 0) -> Decoder:
    """A model whose layers follow `specs` in turn. The same seed gives the same weights outside the encodings."""
    specs = [specs] if isinstance(specs, str) else list(specs)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        schemes = build_layers(specs, config.layers, config.shape(train_length))
    return Decoder(config, schemes, seed)
