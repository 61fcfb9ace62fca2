"""What `lengthen check MODEL` names: a checkpoint, or the config of one to shrink."""

from pathlib import Path
from typing import Any

import torch

from lengthen.core.errors import UsageError

from .tiny import kind_of


def checkpoint(name: str, *, trust_remote_code: bool = False) -> tuple[Any, Any]:
    """A model in float32 and its tokenizer (or None): hub name, folder, GGUF or shipped package, decoder or not.

    Raises UsageError for what is not there, and Refusal for what would have to be asked for; see `lengthen.hf.load`.
    """
    from lengthen.hf.load import load

    config = config_of(name, trust_remote_code)
    if config is None or kind_of(config).__name__ == "AutoModelForCausalLM":
        return load(name, dtype=torch.float32, trust_remote_code=trust_remote_code)
    return kind_of(config).from_pretrained(name, dtype=torch.float32, use_safetensors=True).eval(), None


def config_to_shrink(name: str, *, trust_remote_code: bool = False) -> Any:
    """The config of a checkpoint, or the default config of a model type of transformers such as 'llama'; no weights are read
    where a config can be had without."""
    from transformers import AutoConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if name in CONFIG_MAPPING and not Path(name).exists():
        return AutoConfig.for_model(name)
    config = config_of(name, trust_remote_code)
    return config if config is not None else checkpoint(name, trust_remote_code=trust_remote_code)[0].config


def config_of(name: str, trust_remote_code: bool) -> Any:
    """The config; None where there is none without the weights (a GGUF, a shipped package) or without asking for more.

    Raises UsageError where a hub name leads nowhere.
    """
    from transformers import AutoConfig

    from lengthen.hf.shipped import SHIPPED

    if name.endswith(".gguf") or name in SHIPPED:
        return None
    try:
        return AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code)
    except ValueError:
        return None
    except OSError as e:
        if Path(name).exists():
            return None
        raise UsageError(
            f"There is no folder {name!r}, and no config could be had under that name ({' '.join(str(e).split())[:200]}). Give a "
            "hub name, a folder or a .gguf file; with --tiny also a model type such as 'llama'."
        ) from e
