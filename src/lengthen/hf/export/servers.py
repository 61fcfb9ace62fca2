"""server_flags(): the command lines under which servers compute the same frequencies and multiplier, or why they cannot."""

from lengthen.core import Refusal

from ..extend import Extension
from .llama_cpp import LLAMA_CPP
from .native import KEPT, rope_parameters
from .plan import TABLE, not_vanilla, readable_config, static_spectra
from .reader import reader
from .server import Served, Server, ServerFlags
from .sglang import SGLANG
from .vllm import VLLM

SERVERS = (VLLM, SGLANG, LLAMA_CPP)
BY_LAYER = "the checkpoint has spectra by layer type, which every model file of a server reads in a way of its own"


def server_flags(extension: Extension) -> tuple[ServerFlags, ...]:
    """For vLLM, SGLang and llama.cpp, the flags under which they serve the checkpoint as it is now extended.

    The first two read the checkpoint's own folder or the exported one, llama.cpp a GGUF file made of the checkpoint itself.
    """
    why = without_flags(extension)
    if why is not None:
        return tuple(ServerFlags(server, (), why) for server in SERVERS)
    served = spectrum_served(extension)
    return tuple(_flags(server, served) for server in SERVERS)


def without_flags(extension: Extension) -> str | None:
    """Why no server can be told by flags or entries; None where one may."""
    if extension.route == TABLE:
        return "a longer table of positions is in the weights, and no flag adds one; serve the exported folder"
    why = not_vanilla(extension)
    return BY_LAYER if why is None and None not in extension.schemes else why


def _flags(server: Server, served: Served) -> ServerFlags:
    try:
        return ServerFlags(server, tuple(server.arguments(served)), None)
    except Refusal as refusal:
        return ServerFlags(server, (), str(refusal))


def spectrum_served(extension: Extension) -> Served:
    """The spectrum under the name that transformers gives it; the checkpoint's own entries, other names for it, left aside."""
    static, config = static_spectra(extension)[None], readable_config(extension)
    own = config.rope_parameters
    plain = {name: own[name] for name in KEPT if name in own}
    chosen = rope_parameters(static, plain, reader(extension.installed, config, None, static.tokens))
    return Served(static, chosen, config.model_type, own["rope_type"] if own["rope_type"] != "default" else None)
