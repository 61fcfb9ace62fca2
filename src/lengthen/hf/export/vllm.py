"""vLLM: rope_parameters over the checkpoint's own (read in the source of vLLM 0.33.0).

Its 'yarn' takes attention_factor as the final multiplier (before pull request 48351 it was left out); its 'longrope' does not,
and computes one from the lengths unless short_mscale and long_mscale are given.
"""

import json

from lengthen.core import Refusal

from .native import Parameters
from .server import Served, Server, require_read

MODELS = frozenset(
    (
        "llama",
        "mistral",
        "mixtral",
        "phi3",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "gemma",
        "granite",
        "stablelm",
        "apertus",
    )
)
"""Types whose code hands rope_parameters on as they are."""


def arguments(served: Served) -> list[str]:
    """--hf-overrides and --max-model-len. The length is limited by max_position_embeddings, so that is given too."""
    require_read(served, "vLLM 0.33.0", MODELS)
    overrides = {"max_position_embeddings": served.static.tokens, "rope_parameters": entries(served)}
    return ["--hf-overrides", json.dumps(overrides), "--max-model-len", str(served.static.tokens)]


def entries(served: Served) -> Parameters:
    """transformers' entries with the multiplier where this reader looks for it."""
    given = dict(served.parameters)
    if given["rope_type"] != "longrope":
        return given
    if served.static.interleaved:
        raise Refusal("its 'longrope' turns channels (i, i + R/2) together, and this checkpoint turns (2i, 2i + 1)")
    scale = given.pop("attention_factor")
    return given | {"short_mscale": scale, "long_mscale": scale}


VLLM = Server("vLLM", "0.33.0", ("vllm", "serve", "MODEL"), arguments)
