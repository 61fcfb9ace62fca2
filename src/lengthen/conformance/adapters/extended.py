"""A model of transformers under a scheme of ours, by `lengthen.hf.extend`."""

import sys
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from ..check import NotApplicable
from ..model.hugging_face import HuggingFace
from ..model.subject import Facts, Subject


def is_extended(model: nn.Module) -> bool:
    """Whether `extend` put its rotary module into the model; what was never imported cannot have done so."""
    rotary = sys.modules.get("lengthen.hf.rotary")
    return rotary is not None and any(isinstance(m, rotary.Turning) for m in model.modules())


class Extended(HuggingFace):
    """It counts positions itself and takes documents as `doc`, unless its scheme runs in attention of transformers."""

    @property
    def ours(self) -> bool:
        """Whether its attention is ours."""
        return self.model.config._attn_implementation == "lengthen"

    @property
    def facts(self) -> Facts:
        facts = super().facts
        if not self.ours:
            return facts
        lacks = {"positions": "it counts positions itself", "reload": "a scheme is not saved with a model; extend it again"}
        return replace(facts, lacks={**facts.lacks, **lacks})

    def packed(self, ids: Tensor, doc: Tensor, mask: Tensor | None = None) -> Tensor:
        if not self.ours:
            return super().packed(ids, doc, mask)
        return self._call(ids, mask, None, use_cache=False, doc=doc).logits.double()

    def reloaded(self, folder: Path) -> Subject:
        if self.ours:
            raise NotApplicable("a scheme is not saved with a model; extend it again")
        return HuggingFace(self.model, self.name).reloaded(folder)
