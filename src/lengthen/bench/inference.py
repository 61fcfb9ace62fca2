"""Inference tokens per second: a prompt read at once, then one token at a time, beside transformers' Llama of the same sizes."""

from collections.abc import Iterator
from functools import partial
from inspect import signature
from typing import Protocol

import torch
from torch import Tensor, nn

from lengthen.models import Decoder, make_decoder

from .models import DTYPES, SIZES, ModelBench, ModelRow, beside
from .pairs import Step
from .peers import SMOLLM2_BASE, llama
from .settings import CLOCKS


class Reader(Protocol):
    """A model that reads with a cache. Both give the logits of the last token, [B, V]."""

    def read(self, ids: Tensor) -> Tensor:
        """A prompt, int64 [B, T], into a new cache."""

    def go_on(self, ids: Tensor) -> Tensor:
        """More tokens, int64 [B, t], into the cache of the last prompt."""


class OwnReader:
    """Our decoder."""

    def __init__(self, model: Decoder):
        self.model = model

    def read(self, ids: Tensor) -> Tensor:
        self.cache = self.model.new_cache()
        return self.go_on(ids)

    def go_on(self, ids: Tensor) -> Tensor:
        return self.model.head(self.model.hidden(ids, cache=self.cache)[:, -1])


class TransformersReader:
    """A decoder of transformers, extended or not."""

    def __init__(self, model: nn.Module):
        self.model = model
        # transformers 5.24 renamed the argument; the old name warns.
        self.argument = "cache" if "cache" in signature(model.forward).parameters else "past_key_values"

    def read(self, ids: Tensor) -> Tensor:
        from transformers import DynamicCache

        self.cache = DynamicCache(config=self.model.config)
        return self.go_on(ids)

    def go_on(self, ids: Tensor) -> Tensor:
        return self.model(ids, **{self.argument: self.cache}, use_cache=True, logits_to_keep=1).logits[:, -1]


def inference_rows(bench: ModelBench, method: None, dtype: str, budget: float) -> Iterator[ModelRow]:
    """Rows of prefill and of decoding, each contestant on random weights."""
    config, kind = SIZES[bench.inference_size], DTYPES[dtype]
    spec = f"rope:base={SMOLLM2_BASE:.0f}"
    ids = torch.randint(config.vocab, (1, bench.length), generator=torch.Generator().manual_seed(0)).to(bench.device)
    own = OwnReader(make_decoder(config, spec, bench.length).to(bench.device, kind).eval())
    peers: dict[str, Reader] = {"transformers": TransformersReader(llama(config, kind, 2 * bench.length).to(bench.device))}
    how = {"rounds": bench.rounds, "budget": budget / 2, "clock": CLOCKS[bench.clock], "device": bench.device}
    for task, step, tokens in (("prefill", _prefill, bench.length), ("decode", _decode, bench.new_tokens)):
        makers = {name: partial(step, reader, ids, bench.new_tokens) for name, reader in peers.items()}
        yield from beside(ModelRow(task, spec, dtype, ""), step(own, ids, bench.new_tokens), makers, tokens, **how)


def _prefill(reader: Reader, ids: Tensor, new_tokens: int) -> Step:
    return torch.inference_mode()(lambda: reader.read(ids))


def _decode(reader: Reader, ids: Tensor, new_tokens: int) -> Step:
    """Greedy steps from a prompt that is read once; the cache grows from round to round, for every contestant alike."""
    step = torch.inference_mode()(reader.read)
    token = step(ids).argmax(-1, keepdim=True)

    @torch.inference_mode()
    def decode() -> Tensor:
        nonlocal token
        for _ in range(new_tokens):
            token = reader.go_on(token).argmax(-1, keepdim=True)
        return token

    return decode
