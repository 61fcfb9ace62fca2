"""A model of transformers, read as `train.Objective` reads a decoder."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lengthen.hf.swap import evaluating

PROBE = 8
"""Tokens on which it is seen whether logits are the output layer's own."""


class Readable(nn.Module):
    """A model of transformers as `Objective` reads a decoder: what goes into its output layer, and that layer.

    Some models cap or scale what comes out. Where eight tokens say so, logits are taken from the model itself, all at once.
    """

    def __init__(self, model: PreTrainedModel):
        super().__init__()
        self.model = model
        self.config = _Vocabulary(model.get_input_embeddings().weight.shape[0])
        self.whole = not self._output_layer_is_last()

    def _output_layer_is_last(self) -> bool:
        ids = torch.arange(1, PROBE + 1, device=self.model.device)[None] % self.config.vocab
        with evaluating(self.model):
            return torch.equal(
                self.model.get_output_embeddings()(self._inner(ids)), self.model(input_ids=ids, use_cache=False).logits
            )

    def _inner(self, ids: Tensor) -> Tensor:
        return self.model.base_model(input_ids=ids, use_cache=False)[0]

    def hidden(self, ids: Tensor, doc: Tensor | None = None) -> Tensor:
        """int64 [B, T] -> [B, T, C], or logits [B, T, V] where these cannot be taken apart."""
        return self.model(input_ids=ids, use_cache=False).logits if self.whole else self._inner(ids)

    def head(self, hidden: Tensor) -> Tensor:
        return hidden if self.whole else self.model.get_output_embeddings()(hidden)


@dataclass(frozen=True)
class _Vocabulary:
    vocab: int
