"""T5's buckets: the bias that its self-attentions compute, looked up at other distances."""

from contextlib import ExitStack
from functools import partial

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from lengthen.core import Scheme
from lengthen.methods.t5 import T5Bias

TYPES = ("t5", "mt5", "umt5")
"""Model types that keep a table of biases in their self-attentions and compute them in `compute_bias`."""


class Buckets:
    """Distances divided by a factor before their bucket is looked up, in encoder and decoder, until `remove`."""

    route = "buckets"

    def __init__(self, model: PreTrainedModel, scheme: Scheme):
        self.model, self.before = model, {}
        factor = scheme.terms[0].factor if scheme.terms else 1.0
        self._undo = ExitStack()
        found = [m for m in model.modules() if isinstance(getattr(m, "relative_attention_bias", None), nn.Embedding)]
        self.layers = len(found)
        for module in found:
            module.__dict__["compute_bias"] = partial(_bias, module, _term(module), factor)
            self._undo.callback(module.__dict__.pop, "compute_bias")

    @staticmethod
    def refusal(model: nn.Module) -> str | None:
        """Why a model has no such buckets; None where it has."""
        kind = model.config.model_type
        return None if kind in TYPES else f"buckets of distances are known in {', '.join(TYPES)}, and this is a {kind}"

    @staticmethod
    def own(model: PreTrainedModel) -> Scheme:
        """The buckets as they are."""
        return Scheme()

    @staticmethod
    def trained_length(config: PreTrainedConfig) -> int | None:
        return config.to_dict().get("n_positions")

    def configure(self, tokens: int) -> None:
        """T5's configuration holds no length that the model reads."""

    def remove(self) -> None:
        """The model as it was."""
        self._undo.close()


def _term(module: nn.Module) -> T5Bias:
    """The rule of its buckets; the table stays the module's."""
    buckets, most = module.relative_attention_num_buckets, module.relative_attention_max_distance
    return T5Bias(module.n_heads, 1, buckets, most, bidirectional=not module.is_decoder)


def _bias(
    module: nn.Module,
    term: T5Bias,
    factor: float,
    query_length: int,
    key_length: int,
    device: torch.device | None = None,
    past_seen_tokens: int = 0,
) -> Tensor:
    """[1, H, Q, K], as transformers' own method of that name."""
    device = device if device is not None else module.relative_attention_bias.weight.device
    query = torch.arange(query_length, dtype=torch.float64, device=device)[:, None] + past_seen_tokens
    distance = query - torch.arange(key_length, dtype=torch.float64, device=device)
    return module.relative_attention_bias(term.bucket(distance / factor)).permute(2, 0, 1)[None]
