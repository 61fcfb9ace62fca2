"""Whole models of x-transformers (read at 2.31): a `TransformerWrapper` around a `Decoder`."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..model.subject import Facts, Subject, chunks

NO_POSITIONS = "x-transformers takes positions for some encodings only, and never with a cache"


class XTransformer(Subject):
    """Padding on the left goes in as `seq_start_pos`, on the right as `mask`. A step gives the new tokens, with their cache.

    aged: steps of several tokens also say `cache_age`, their number, which the library offers for speculative decoding;
    without it a step is called as any other.
    """

    def __init__(self, model: nn.Module, name: str | None = None, aged: bool = False):
        self.model = model.eval()
        self.name = name if name is not None else type(model).__name__
        self.aged = aged

    @property
    def facts(self) -> Facts:
        table = type(self.model.pos_emb).__name__ == "AbsolutePositionalEmbedding"
        length = self.model.max_seq_len if table else None
        lacks = {"positions": NO_POSITIONS, "reload": "x-transformers has no format for saving a model with its settings"}
        if not self.model.attn_layers.causal:
            lacks["cache"] = lacks["causal"] = "it attends in both directions and has no cache"
        return Facts(self.model.num_tokens, length, absolute=length is not None, ends=length is not None, lacks=lacks)

    def logits(self, ids: Tensor, mask: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        return self.model(ids, **_padding(mask)).double()

    def decode(self, ids: Tensor, sizes: Sequence[int], mask: Tensor | None = None) -> Tensor:
        cache, found = None, []
        for part in chunks(ids.shape[1], sizes):
            how = {} if cache is None else {"cache": cache, "input_not_include_cache": True}
            if cache is not None and self.aged:
                how["cache_age"] = ids[:, part].shape[1]
            logits, cache = self.model(ids[:, part], return_intermediates=True, **how, **_padding(mask, part.stop))
            found.append(logits.double())
        return torch.cat(found, dim=1)

    def carrying(self, model: nn.Module) -> Subject:
        return XTransformer(model, self.name, self.aged)


def _padding(mask: Tensor | None, tokens: int | None = None) -> dict[str, Tensor]:
    """A mask of the first `tokens` whose padding is on the left as where each row starts; another mask as it is."""
    if mask is None:
        return {}
    if not bool(mask.all()) and bool(mask[:, -1].all()):
        return {"seq_start_pos": (mask == 0).sum(1)}
    return {"mask": mask[:, :tokens].bool()}
