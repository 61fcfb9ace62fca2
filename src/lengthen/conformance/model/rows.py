"""Checks on what stands beside a text: padding, other rows, other documents, gaps in the positions."""

import torch
from torch import Tensor

from .check import NotApplicable
from .decoding import switches
from .register import model_check
from .subject import Subject, difference, rounding
from .verdict import Measured, worst

PAD = 13
"""Tokens."""


def padded(subject: Subject, tokens: int, left: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """ids and mask [2, tokens + PAD], the first row padded; that row alone, and the other row alone."""
    short, long, filler = subject.ids(tokens, 1), subject.ids(tokens + PAD, 1, salt=1), subject.ids(PAD, 1, salt=2)
    both = torch.cat((torch.cat((filler, short) if left else (short, filler), dim=1), long))
    mask = torch.ones_like(both)
    mask[0, slice(0, PAD) if left else slice(tokens, None)] = 0
    return both, mask, short, long


def positions_of(mask: Tensor) -> Tensor:
    """Positions that start at the first token that is no padding; padding stands at 0."""
    return (mask.cumsum(1) - 1).clamp(min=0)


def compare(subject: Subject, left: bool, run, tokens: int = 24) -> Measured:
    """The padded row, and the row beside it, against each alone. `run(subject, ids, mask)` -> logits."""
    both, mask, short, long = padded(subject, subject.within(tokens + PAD) - PAD, left)
    found = run(subject.fresh(), both, mask)
    alone, mate = subject.fresh().logits(short), subject.fresh().logits(long)
    where = slice(PAD, None) if left else slice(0, short.shape[1])
    gaps = difference(found[:1, where], alone), difference(found[1:], mate)
    which = "the padded row" if gaps[0] >= gaps[1] else "the row beside it"
    return Measured(max(gaps), rounding(subject, mate), which)


@model_check(
    "left_padding",
    "padding",
    meaning="In a batch of prompts of different lengths the shorter ones get other logits than alone, unless position_ids are given.",
    cause="Positions count padding, or padding is attended to.",
)
def left_padding(subject: Subject) -> Measured:
    """A row padded on the left, with a mask and nothing else, gives the logits of the row alone."""
    subject.requires("causal", "mask")
    return compare(subject, True, lambda s, ids, mask: s.logits(ids, mask))


@model_check(
    "left_padding_positions",
    "padding",
    meaning="In a batch of prompts of different lengths the shorter ones get other logits than alone, whatever the caller does.",
    cause="Positions are ignored, or padding is attended to.",
)
def left_padding_positions(subject: Subject) -> Measured:
    """A row padded on the left, with a mask and positions that start behind the padding, gives the logits of the row alone."""
    subject.requires("causal", "mask", "positions")
    return compare(subject, True, lambda s, ids, mask: s.logits(ids, mask, positions_of(mask)))


@model_check(
    "left_padding_cached",
    "padding",
    meaning="Batched generation writes other text for the shorter prompts than for the same prompts alone.",
    cause="One shared position for all rows of a step, or a mask of the new tokens only.",
)
def left_padding_cached(subject: Subject) -> Measured:
    """A row padded on the left and decoded token by token gives the logits of the row alone."""
    subject.requires("causal", "cache", "mask")
    return compare(subject, True, lambda s, ids, mask: s.decode(ids, (PAD + 6, 1), mask))


@model_check(
    "right_padding",
    "padding",
    meaning="Training and scoring of batches of different lengths see other logits than each text alone.",
    cause="Padding is attended to, or the length of the batch stands for that of the row.",
)
def right_padding(subject: Subject) -> Measured:
    """A row padded on the right gives the logits of the row alone."""
    subject.requires("causal", "mask")
    return compare(subject, False, lambda s, ids, mask: s.logits(ids, mask))


@model_check(
    "ones_mask",
    "padding",
    meaning="A mask that hides nothing changes the result, so calling with or without one are two models.",
    cause="Another path for masked batches, with other positions or another scaling.",
)
def ones_mask(subject: Subject) -> Measured:
    """A mask of ones gives the logits of no mask, in a forward and through the cache."""
    subject.requires("mask")
    ids = subject.ids(subject.within(30))
    mask, alone = torch.ones_like(ids), subject.fresh().logits(ids)
    found = [Measured(difference(subject.fresh().logits(ids, mask), alone), rounding(subject, alone), "one forward")]
    if "cache" not in subject.facts.lacks and "causal" not in subject.facts.lacks:
        gap = difference(subject.fresh().decode(ids, (10, 1), mask), subject.fresh().decode(ids, (10, 1)))
        found.append(Measured(gap, rounding(subject, alone), "through the cache"))
    return worst(found)


@model_check(
    "mask_hides",
    "padding",
    meaning="Padding is read as text: the filler changes the result.",
    cause="The mask is accepted and dropped.",
)
def mask_hides(subject: Subject) -> Measured:
    """What stands on masked places, left or right, changes nothing elsewhere."""
    subject.requires("mask")
    found = []
    for left in (True, False):
        both, mask, short, _ = padded(subject, subject.within(24 + PAD) - PAD, left)
        other = torch.where(mask == 0, (both + 1) % subject.facts.vocab, both)
        at = slice(PAD, None) if left else slice(0, short.shape[1])
        a, b = (subject.fresh().logits(ids, mask)[:1, at] for ids in (both, other))
        found.append(Measured(difference(a, b), rounding(subject, a), f"padding on the {'left' if left else 'right'}"))
    return worst(found)


@model_check(
    "batch_mates",
    "batch",
    meaning="What one user gets depends on who shares the batch.",
    cause="The longest row of the batch chooses frequencies, factors or a scale for all.",
)
def batch_mates(subject: Subject) -> Measured:
    """A row gives the same logits alone, beside other rows, and beside rows longer than a length at which a rule switches."""
    ids = subject.ids(subject.within(30), rows=3)
    alone = subject.fresh().logits(ids[:1])
    found = [Measured(difference(subject.fresh().logits(ids)[:1], alone), rounding(subject, alone), "three rows of a length")]
    if "mask" not in subject.facts.lacks and "causal" not in subject.facts.lacks:
        found += [_short_and_long(subject, n) for n in switches(subject)]
    return worst(found)


def _short_and_long(subject: Subject, switch: int) -> Measured:
    """A row that ends two tokens before the switch, beside one that passes it."""
    short, long = switch - 2, subject.within(switch + 9)
    ids = subject.ids(long, rows=2, salt=3)
    mask = torch.ones_like(ids)
    mask[0, short:] = 0
    alone = subject.fresh().logits(ids[:1, :short])
    gap = difference(subject.fresh().logits(ids, mask)[:1, :short], alone)
    return Measured(gap, rounding(subject, alone), f"{short} tokens beside a row of {long}")


def _packed(subject: Subject, mask: bool) -> Measured:
    """Three documents in a row, against each alone."""
    subject.requires("causal")
    cuts, ids = (9, 15, 8), subject.ids(subject.within(32), rows=1)
    doc = torch.arange(len(cuts)).repeat_interleave(torch.tensor(cuts))[None]
    found = subject.fresh().packed(ids, doc, torch.ones_like(ids) if mask else None)
    gaps, start = {}, 0
    for n in cuts:
        alone = subject.fresh().logits(ids[:, start : start + n])
        gaps[f"the document of tokens {start} to {start + n - 1}"] = difference(found[:, start : start + n], alone)
        start += n
    where = max(gaps, key=gaps.get)
    return Measured(gaps[where], rounding(subject, found), where)


@model_check(
    "packed",
    "packing",
    meaning="Documents packed into one row read each other, so training sees text that no document holds.",
    cause="Positions that restart are not taken as borders, or are ignored.",
)
def packed(subject: Subject) -> Measured:
    """Documents packed into one row, without a mask, give the logits of each alone."""
    return _packed(subject, mask=False)


@model_check(
    "packed_ones_mask",
    "packing",
    meaning="Documents packed into one row read each other as soon as the collator adds its usual mask of ones.",
    cause="Borders are inferred from positions only where no mask is given.",
)
def packed_ones_mask(subject: Subject) -> Measured:
    """Documents packed into one row, with a mask of ones, give the logits of each alone."""
    return _packed(subject, mask=True)


@model_check(
    "position_gaps",
    "packing",
    meaning="Training on skipped or randomised positions silently cuts attention at every gap.",
    cause="A gap in the positions is read as the border of a document.",
)
def position_gaps(subject: Subject) -> Measured:
    """Skipped positions hide nothing: tokens behind a gap depend on those before it, as they do without the gap.

    Counts the tokens that stop depending on an earlier one.
    """
    subject.requires("causal", "positions")
    ids, at = subject.ids(subject.within(24)), 10
    if subject.facts.length is not None and subject.facts.absolute and subject.facts.length < ids.shape[1] + 5:
        raise NotApplicable(f"its table of {subject.facts.length} positions has no room for a gap")
    other = ids.clone()
    other[:, at - 1] = 3 + (other[:, at - 1] - 2) % (subject.facts.vocab - 3)
    straight = torch.arange(ids.shape[1]).expand_as(ids)

    def moves(positions: Tensor) -> Tensor:
        a, b = (subject.fresh().logits(x, None, positions) for x in (ids, other))
        return (a - b).abs().amax((0, 2))[at:] > rounding(subject, a) / 20

    seen = moves(straight)
    if not bool(seen.any()):
        raise NotApplicable(f"token {at - 1} is out of sight of all later ones")
    lost = int((seen & ~moves(straight + 4 * (straight >= at))).sum())
    return Measured(float(lost), 0.0, f"{lost} of {int(seen.sum())} tokens no longer see it" if lost else "")


@model_check(
    "positions_read",
    "packing",
    meaning="Position ids are accepted and ignored: packing, padding and interpolation through them do nothing.",
    cause="The argument is swallowed by **kwargs, or positions are counted from the mask only.",
)
def positions_read(subject: Subject) -> Measured:
    """Positions that are given are used: threefold distances change the logits."""
    subject.requires("positions", "causal")
    tokens = subject.within(24) if not subject.facts.absolute else min(24, (subject.facts.length or 24) // 3)
    ids = subject.ids(tokens)
    places = torch.arange(tokens).expand_as(ids)
    mask = torch.ones_like(ids) if "mask" not in subject.facts.lacks else None
    near = subject.fresh().logits(ids, mask, places)
    far = subject.fresh().logits(ids, mask, 3 * places)
    used = difference(near, far) > rounding(subject, near)
    return Measured(0.0 if used else 1.0, 0.0, "" if used else "threefold positions gave the same logits")
