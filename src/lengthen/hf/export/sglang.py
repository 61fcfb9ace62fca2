"""SGLang: rope_parameters over the checkpoint's own (read in the source of SGLang 0.5.23).

Its 'yarn' reads no attention_factor and multiplies 0.1 ln s + 1 by attn_factor; its 'longrope' reads short_mscale and long_mscale.
Of the model files, some hand no scaling on (Gemma, Mixtral, StableLM, Phi-2, StarCoder 2).
"""

import json

from lengthen.core import Refusal
from lengthen.methods.yarn import mscale_of

from .native import Parameters
from .server import Served, Server, require_read
from .vllm import entries as as_vllm

MODELS = frozenset(("llama", "mistral", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "granite", "apertus", "arcee"))
"""Types whose code hands rope_parameters on as they are."""


def arguments(served: Served) -> list[str]:
    """--json-model-override-args and --context-length."""
    require_read(served, "SGLang 0.5.23", MODELS)
    static = served.static
    if static.size != static.head_size:
        raise Refusal(f"it would turn all {static.head_size} channels of a head, where this checkpoint turns {static.size}")
    overrides = {"max_position_embeddings": static.tokens, "rope_parameters": entries(served)}
    return ["--json-model-override-args", json.dumps(overrides), "--context-length", str(static.tokens)]


def entries(served: Served) -> Parameters:
    """transformers' entries with the multiplier where this reader looks for it."""
    given = as_vllm(served)
    if given["rope_type"] == "yarn" and "attention_factor" in given:
        given["attn_factor"] = given.pop("attention_factor") / mscale_of(given["factor"])
    return given


SGLANG = Server("SGLang", "0.5.23", ("python", "-m", "sglang.launch_server", "--model-path", "MODEL"), arguments)
