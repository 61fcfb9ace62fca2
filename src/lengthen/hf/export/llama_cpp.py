"""llama.cpp: flags over what a GGUF file says (read in its source since pull request 18006, December 2025).

With YaRN on, --yarn-attn-factor is overwritten: the multiplier is 0.1 ln s + 1 times the file's rope.scaling.attn_factor. The
server caps a slot at the file's context_length whatever --ctx-size says, so both are overridden here.
"""

from lengthen.core import Refusal
from lengthen.methods.yarn import mscale_of

from .native import Parameters
from .server import Served, Server

ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gpt_neox": "gptneox",
    "smollm3": "smollm3",
}
"""By model_type, what GGUF files call the architecture, where all layers take frequencies from the same flags."""
TABLE = "lengthen.hf.export_gguf writes the frequencies into a copy of a GGUF of the architecture 'llama'"


def arguments(served: Served) -> list[str]:
    """Scaling flags, the context, and what only the file's entries can say."""
    if served.model_type not in ARCHITECTURES:
        raise Refusal(f"models of type {served.model_type!r} were not read there; read: {', '.join(sorted(ARCHITECTURES))}")
    if served.scaled is not None:
        raise Refusal(
            f"a GGUF of this checkpoint scales its frequencies already ({served.scaled}), and flags would add to that"
        )
    arch, tokens = ARCHITECTURES[served.model_type], served.static.tokens
    flags, overrides = _scaling(served.parameters, served.static.original)
    given = {"context_length": f"int:{tokens}"} | overrides
    joined = ",".join(f"{arch}.{key}={value}" for key, value in given.items())
    return [*flags, "--ctx-size", str(tokens), "--override-kv", joined]


def _scaling(given: Parameters, original: int) -> tuple[list[str], dict[str, str]]:
    kind, base = given["rope_type"], ["--rope-freq-base", repr(float(given["rope_theta"]))]
    if kind == "default":
        return ["--rope-scaling", "none", *base], {}
    if kind == "linear":
        return ["--rope-scaling", "linear", "--rope-scale", f"{given['factor']!r}", *base], {}
    if kind == "yarn" and given.get("truncate", True):
        return _yarn(given, base)
    raise Refusal(f"no flag gives these frequencies ({kind}, over {original} trained tokens). {TABLE}")


def _yarn(given: Parameters, base: list[str]) -> tuple[list[str], dict[str, str]]:
    factor, ends = given["factor"], (given.get("beta_fast", 32.0), given.get("beta_slow", 1.0))
    flags = ["--rope-scaling", "yarn", "--rope-scale", f"{factor!r}", *base]
    flags += ["--yarn-orig-ctx", str(given["original_max_position_embeddings"]), "--yarn-ext-factor", "1.0"]
    flags += ["--yarn-beta-fast", f"{ends[0]!r}", "--yarn-beta-slow", f"{ends[1]!r}"]
    default = mscale_of(factor)
    ratio = given.get("attention_factor", default) / default
    return flags, {} if ratio == 1 else {"rope.scaling.attn_factor": f"float:{ratio!r}"}


LLAMA_CPP = Server("llama.cpp", "since December 2025", ("llama-server", "-m", "MODEL.gguf"), arguments)
