"""Checks that text which transformers generates greedily is the text that the model prefers, step by step."""

import torch
from torch import Tensor

from .check import NotApplicable
from .decoding import switches
from .hugging_face import EncoderDecoder, HuggingFace
from .register import model_check
from .subject import Subject, difference, rounding
from .verdict import Measured, worst

NEW = 6
"""Tokens to generate."""


@model_check(
    "generate",
    "generation",
    meaning="The text that `generate` writes is not what the model prefers: it depends on the cache.",
    cause="Keys in the cache were turned by another rule than the one that holds at the new length.",
)
def generate(subject: Subject) -> Measured:
    """Each token that `generate` writes is chosen by the logits of a forward of the text before it, also across a switch."""
    _require(subject)
    starts = {subject.within(20), *(n - 2 for n in switches(subject))}
    return worst(_generated(subject, [subject.ids(n, rows=1)]) for n in sorted(starts) if n > 0)


@model_check(
    "generate_batch",
    "generation",
    meaning="What one user is answered depends on who shares the batch.",
    cause="One length, one frequency set or one position for all rows of a batch.",
)
def generate_batch(subject: Subject) -> Measured:
    """The same for two prompts in a batch, the shorter one padded on the left, the longer one past a switch."""
    _require(subject)
    subject.requires("mask")
    found = []
    for long in (subject.within(20), *(n + 3 for n in switches(subject))):
        rows = [subject.ids(9, rows=1), subject.ids(long, rows=1, salt=1)]
        found.append(_generated(subject, rows))
    return worst(found)


def _require(subject: Subject) -> None:
    subject.requires("causal", "cache")
    if not isinstance(subject, HuggingFace) or isinstance(subject, EncoderDecoder):
        raise NotApplicable("it has no `generate` of transformers that continues a text")
    ends = subject.facts.length if subject.facts.ends else None
    if ends is not None and ends < 20 + NEW:
        raise NotApplicable(f"it ends at {ends} tokens")


def _generated(subject: Subject, rows: list[Tensor]) -> Measured:
    """The logits of each step of `generate`, against a forward of the text before it, row by row."""
    longest = max(r.shape[1] for r in rows)
    pad = [longest - r.shape[1] for r in rows]
    ids = torch.cat([torch.cat((r.new_full((1, n), 3), r), dim=1) for r, n in zip(rows, pad, strict=True)])
    mask = torch.stack([torch.arange(longest) >= n for n in pad]).long()
    written, seen = greedy(subject.fresh(), ids, mask)
    found = []
    for row, n in enumerate(pad):
        for step in range(longest, written.shape[1]):
            right = subject.fresh().logits(written[row : row + 1, n:step])[:, -1]
            error = difference(seen[row : row + 1, step - longest], right)
            found.append(Measured(error, rounding(subject, right), f"prompt of {longest - n}, token {step - n}"))
    return worst(found)


def greedy(subject: Subject, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Prompts with `NEW` tokens more, by the library's own loop with its cache, and the logits of these [B, NEW, V]."""
    from transformers import GenerationConfig

    lengths = {"max_new_tokens": NEW, "min_new_tokens": NEW, "pad_token_id": 3}
    how = GenerationConfig(**lengths, do_sample=False, use_cache=True, output_logits=True, return_dict_in_generate=True)
    subject.model.generation_config = how
    out = subject.model.generate(ids, attention_mask=mask, generation_config=how)
    return out.sequences, torch.stack(out.logits, dim=1).double()
