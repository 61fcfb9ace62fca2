"""Checks that decoding through the cache, and longer texts, change nothing that was computed before."""

import torch

from .check import NotApplicable
from .register import model_check
from .subject import Subject, chunks, difference, rounding
from .verdict import Measured, worst

LONGEST = 600
"""Tokens; switches beyond it are left to tiny models of the same config."""


def compare(subject: Subject, tokens: int, sizes: tuple[int, ...]) -> Measured:
    """Decoding in chunks of those sizes against one forward."""
    ids = subject.ids(tokens)
    full = subject.fresh().logits(ids)
    found = subject.fresh().decode(ids, sizes)
    if found.shape != full.shape:
        lost = full.shape[1] - found.shape[1]
        return Measured(float(lost), 0.0, f"a step of {sizes} tokens gave no logits for {lost} of {tokens} tokens")
    where = int((found - full).abs().amax((0, 2)).argmax())
    return Measured(difference(found, full), rounding(subject, full), f"chunks {sizes}, worst at token {where}")


@model_check(
    "cached_tokens",
    "cache",
    meaning="Generated text differs from what the model was trained to write: each step computes other logits than a forward would.",
    cause="Positions, masks or gates of a step are made from the new token alone, or cached keys were turned by another rule.",
)
def cached_tokens(subject: Subject) -> Measured:
    """A prompt and then single tokens through the cache give the logits of one forward."""
    subject.requires("causal", "cache")
    tokens = subject.within(33)
    return worst(compare(subject, tokens, sizes) for sizes in ((10, 1), (1,)))


@model_check(
    "cached_chunks",
    "cache",
    meaning="Speculative decoding, chunked prefill and multi-turn prompts compute other logits than a forward would.",
    cause="Causal masks or biases of several queries against more keys are aligned to the wrong corner, or new tokens are dropped.",
)
def cached_chunks(subject: Subject) -> Measured:
    """Chunks of several tokens through the cache give the logits of one forward."""
    subject.requires("causal", "cache")
    tokens = subject.within(33)
    return worst(compare(subject, tokens, sizes) for sizes in ((10, 5), (7,), (3, 11, 2)))


@model_check(
    "cached_switch",
    "cache",
    meaning="Text that grows past that length while it is generated is computed with cached keys of the old rule.",
    cause="Keys are cached after turning, and the frequencies or the window change with the length.",
)
def cached_switch(subject: Subject) -> Measured:
    """Decoding across each length at which a rule switches gives the logits of one forward of the whole."""
    subject.requires("causal", "cache")
    found = []
    for n in reachable(subject):
        for sizes in ((n - 2, 1), (n - 1, 3), (n, 1), (n + 1, 2), (7,)):
            found.append(compare(subject, subject.within(n + 5), sizes))
    return worst(found)


@model_check(
    "prefix",
    "causality",
    meaning="Early logits depend on tokens that come later: perplexity is measured with a look ahead, and generation cannot match it.",
    cause="A mask that lets later keys through, or frequencies chosen by the length of the whole input.",
)
def prefix(subject: Subject) -> Measured:
    """The first logits do not depend on how many tokens follow, nor on which."""
    subject.requires("causal")
    found = [_prefix(subject, subject.within(33), (1, 2, 9, 17, 32))]
    found += [_prefix(subject, subject.within(n + 9), (n - 2, n - 1, n, n + 1)) for n in switches(subject)]
    return worst(found)


def _prefix(subject: Subject, tokens: int, lengths: tuple[int, ...]) -> Measured:
    ids = subject.ids(tokens)
    full = subject.fresh().logits(ids)
    other = torch.cat((ids[:, : tokens // 2], subject.ids(tokens - tokens // 2, salt=1)), dim=1)
    gaps = {
        f"the first {n} of {tokens} tokens": difference(subject.fresh().logits(ids[:, :n]), full[:, :n])
        for n in lengths
        if 0 < n < tokens
    }
    gaps[f"other tokens after {tokens // 2}"] = difference(
        subject.fresh().logits(other)[:, : tokens // 2], full[:, : tokens // 2]
    )
    where = max(gaps, key=gaps.get)
    return Measured(gaps[where], rounding(subject, full), where)


def switches(subject: Subject) -> list[int]:
    """The lengths of switches that texts of the checks can reach."""
    return [n for n in subject.facts.switches if n <= LONGEST]


def reachable(subject: Subject) -> list[int]:
    """The same. Raises NotApplicable where there is none."""
    found = switches(subject)
    if found:
        return found
    known = subject.facts.switches
    raise NotApplicable(
        f"its rules switch at {known} tokens, beyond {LONGEST}; check a tiny model of the same config"
        if known
        else "no rule of it switches with the length"
    )


__all__ = ["chunks", "compare", "reachable", "switches"]
