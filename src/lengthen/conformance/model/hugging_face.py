"""A causal language model of transformers, called as its documentation says."""

import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .declared import Compared, compared
from .subject import Facts, Subject, chunks


class HuggingFace(Subject):
    """Wraps a `PreTrainedModel` that gives logits of its input. The model itself is copied, and stays as it is."""

    def __init__(self, model: nn.Module, name: str | None = None):
        self.model = model.eval()
        self.name = name if name is not None else type(model).__name__
        self._parameters = inspect.signature(model.forward).parameters
        self._facts = facts_of(model, self._parameters)

    @property
    def facts(self) -> Facts:
        return self._facts

    def logits(self, ids: Tensor, mask: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        return self._call(ids, mask, positions, use_cache=False).logits.double()

    def decode(self, ids: Tensor, sizes: Sequence[int], mask: Tensor | None = None) -> Tensor:
        cache, found = None, []
        name = "cache" if "cache" in self._parameters else "past_key_values"
        for part in chunks(ids.shape[1], sizes):
            seen = None if mask is None else mask[:, : part.stop]
            out = self._call(ids[:, part], seen, None, use_cache=True, **({} if cache is None else {name: cache}))
            cache = out.past_key_values
            found.append(out.logits.double())
        return torch.cat(found, dim=1)

    def _call(self, ids: Tensor, mask: Tensor | None, positions: Tensor | None, **how: Any) -> Any:
        given = {} if mask is None else {"attention_mask": mask}
        if positions is not None:
            given["position_ids"] = positions
        return self.model(input_ids=ids, **given, **how)

    def carrying(self, model: nn.Module) -> Subject:
        return type(self)(model, self.name)

    def reloaded(self, folder: Path) -> Subject:
        self.model.save_pretrained(folder)
        kind = next(p.dtype for p in self.model.parameters())
        return self.carrying(type(self.model).from_pretrained(folder, dtype=kind, local_files_only=True))

    def spectra(self) -> list[Compared]:
        return compared(self.model, self.model.config.get_text_config())

    def configuration(self) -> str:
        return json.dumps(self.model.config.to_dict(), sort_keys=True, default=repr)


def facts_of(model: nn.Module, parameters: Any) -> Facts:
    """What config and signature say."""
    config = model.config.get_text_config()
    length = next((n for key in LENGTHS if (n := getattr(config, key, None)) is not None), None)
    absolute = _has_table(model, config.vocab_size, length)
    takes = "position_ids" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    lacks = {} if takes and not model.config.is_encoder_decoder else {"positions": "its forward takes no position_ids"}
    if not model.can_generate():
        lacks["cache"] = lacks["causal"] = "it is no causal language model: transformers generates nothing with it"
    ends = absolute or config.model_type in ENDING
    switches, adaptive = switches_of(config)
    return Facts(config.vocab_size, length, switches, adaptive, absolute, ends, lacks)


LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len")
"""Under which names configs declare a length; the first that is there counts."""
ENDING = ("mpt",)
"""Families that build a bias of their declared length and refuse longer texts."""


def _has_table(model: nn.Module, vocab: int, length: int | None) -> bool:
    """Whether there is an embedding of positions: as many rows as the declared length, or two more as in OPT."""
    tables = ((name, m.num_embeddings) for name, m in model.named_modules() if isinstance(m, nn.Embedding))
    places = {n for name, n in tables if "pos" in name or n != vocab}
    return length is not None and bool(places & {length, length + 2})


def ropes_of(config: Any) -> dict[str | None, dict[str, Any]]:
    """The rope parameters by layer type; None: one set for all layers. Empty where there are none."""
    given = getattr(config, "rope_parameters", None)
    if not given:
        return {}
    nested = {k: v for k, v in given.items() if isinstance(v, dict)}
    return nested if nested else {None: given}


def switches_of(config: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Lengths in tokens at which any rule changes, and those from which on frequencies do."""
    ropes = ropes_of(config).values()
    window = getattr(config, "sliding_window", None)
    original = lambda r: r.get("original_max_position_embeddings", getattr(config, "original_max_position_embeddings", None))
    adaptive = {original(r) or config.max_position_embeddings for r in ropes if r.get("rope_type") in ("dynamic", "longrope")}
    every = adaptive | {original(r) for r in ropes} | {window, getattr(config, "attention_chunk_size", None)}
    tidy = lambda found: tuple(sorted(n for n in found if isinstance(n, int) and n > 2))
    return tidy(every), tidy(adaptive)


class EncoderDecoder(HuggingFace):
    """An encoder-decoder such as T5: the decoder is checked, beside one and the same text in the encoder."""

    SOURCE = 11
    """Tokens of that text."""

    def _call(self, ids: Tensor, mask: Tensor | None, positions: Tensor | None, **how: Any) -> Any:
        source = torch.arange(3, 3 + self.SOURCE).expand(len(ids), -1) % self.facts.vocab
        given = {} if mask is None else {"decoder_attention_mask": mask}
        return self.model(input_ids=source, decoder_input_ids=ids, **given, **how)
