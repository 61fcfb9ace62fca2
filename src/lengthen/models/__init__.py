"""Models whose layers take schemes."""

from .decoder import Decoder, DecoderConfig
from .presets import PRESETS, make_decoder, preset

__all__ = ["PRESETS", "Decoder", "DecoderConfig", "make_decoder", "preset"]
