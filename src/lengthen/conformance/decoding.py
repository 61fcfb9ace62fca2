"""Checks on what a token may depend on: the cache, later tokens, padding, documents, neighbours, gaps in positions."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lengthen.models import Decoder

from .check import NotApplicable, check, gap, require_causal
from .subject import Subject, moved

EXACT = 1e-9
"""Logits of a float64 model; what is left is the order of summation."""


def decode(model: Decoder, ids: Tensor, sizes: Sequence[int], valid: Tensor | None = None, doc: Tensor | None = None) -> Tensor:
    """Logits of chunks of those sizes, one after another through a cache; `sizes` is repeated until `ids` are used up.

    `doc` may end early, on the border of a chunk: later tokens then continue the last document.
    """
    cache, out, start = model.new_cache(), [], 0
    while start < ids.shape[1]:
        part = slice(start, start + sizes[len(out) % len(sizes)])
        documents = None if doc is None or start >= doc.shape[1] else doc[:, part]
        out.append(model(ids[:, part], valid=None if valid is None else valid[:, part], doc=documents, cache=cache))
        start = part.stop
    return torch.cat(out, dim=1)


@check("cached_chunks", EXACT)
@torch.no_grad()
def cached_chunks(subject: Subject) -> float:
    """Decoding through the cache, in chunks of any size and past the training length, gives the logits of one forward.

    One, five and seven tokens at a time, then random sizes; a fresh model each time, so that none profits from another.
    """
    require_causal(subject)
    ids = subject.ids(33)
    full = subject.decoder()(ids)
    drawn = [torch.randint(1, 10, (8,), generator=subject.generator(n)).tolist() for n in range(2)]
    return max(gap(decode(subject.decoder(), ids, sizes), full) for sizes in ([1], [5], [7], *drawn))


@check("prefix", EXACT)
@torch.no_grad()
def prefix(subject: Subject) -> float:
    """Later tokens change nothing earlier: a prefix read alone gives the logits that it has inside a longer text."""
    require_causal(subject)
    model, ids = subject.decoder(), subject.ids(40)
    full = model(ids)
    other = torch.cat((ids[:, :20], subject.ids(20, salt=1)), dim=1)
    alone = max(gap(model(ids[:, :n]), full[:, :n]) for n in (1, 2, 10, 15, 16, 17, 33))
    return max(alone, gap(model(other)[:, :20], full[:, :20]))


def _padded(subject: Subject, left: bool, pad: int = 13, tokens: int = 24) -> float:
    """Row 0 is padded; row 1 is as long as the padded row and must not notice."""
    model, ids, long = subject.decoder(), subject.ids(tokens, rows=1), subject.ids(tokens + pad, rows=1, salt=1)
    filler = subject.ids(pad, rows=1, salt=2)
    where = slice(pad, None) if left else slice(0, tokens)
    both = torch.cat((torch.cat((filler, ids) if left else (ids, filler), dim=1), long))
    valid = torch.ones_like(both, dtype=torch.bool)
    valid[0, slice(0, pad) if left else slice(tokens, None)] = False
    found = [model(both, valid=valid)]
    if left and model.schemes[0].pattern.causal:
        found += [decode(model, both, sizes, valid) for sizes in ([pad + 4, 1, 5], [7])]
    alone, mate = model(ids), model(long)
    return max(max(gap(y[:1, where], alone), gap(y[1:], mate)) for y in found)


@check("left_padding", EXACT)
@torch.no_grad()
def left_padding(subject: Subject) -> float:
    """A row padded on the left gives the logits of the row alone, at once and through the cache."""
    return _padded(subject, left=True)


@check("right_padding", EXACT)
@torch.no_grad()
def right_padding(subject: Subject) -> float:
    """A row padded on the right gives the logits of the row alone."""
    return _padded(subject, left=False)


@check("packed", EXACT)
@torch.no_grad()
def packed(subject: Subject) -> float:
    """Documents of different lengths packed into one row give the logits of each read alone, at once and through the cache."""
    model, ids, worst = subject.decoder(), subject.ids(38), 0.0
    cuts = ((9, 17, 1, 11), (20, 18))
    doc = torch.stack([torch.arange(len(c)).repeat_interleave(torch.tensor(c)) for c in cuts])
    found = [model(ids, doc=doc)]
    if model.schemes[0].pattern.causal:
        found += [decode(model, ids, [5, 7], doc=doc), decode(model, ids, [30, 1, 4], doc=doc[:, :30])]
    for row in range(2):
        for n in range(len(cuts[row])):
            own = doc[row] == n
            alone = model(ids[row : row + 1, own])[0]
            worst = max(worst, *(gap(y[row, own], alone) for y in found))
    return worst


@check("batch_mates", EXACT)
@torch.no_grad()
def batch_mates(subject: Subject) -> float:
    """A row's logits do not depend on the rows beside it, whether those are whole, padded or packed."""
    model, ids = subject.decoder(), subject.ids(30, rows=4)
    alone = model(ids[:1])
    valid = torch.ones_like(ids, dtype=torch.bool)
    valid[1, :21], valid[2, 17:] = False, False
    doc = torch.zeros_like(ids)
    doc[1, 4:], doc[2, 19:], doc[3, 29:] = 1, 1, 1
    return max(gap(y[:1], alone) for y in (model(ids), model(ids, valid=valid), model(ids, doc=doc)))


@check("position_gaps", 0.0)
@torch.no_grad()
def position_gaps(subject: Subject) -> float:
    """Positions never imply masks: a token seen without a gap in the positions is seen across the gap.

    Counts the later tokens that stop depending on an earlier one when three positions are skipped or positions restart.
    """
    scheme, ids, at = subject.scheme(), subject.ids(24), 12
    other = ids.clone()
    other[:, at - 1] = (other[:, at - 1] + 1) % 50
    moves = lambda s: (subject.decoder(s)(ids) - subject.decoder(s)(other)).abs().amax((0, 2))[at:] > 1e-12
    seen = moves(scheme)
    if not seen.any():
        raise NotApplicable(f"token {at - 1} is out of sight of all later ones")
    skip, restart = lambda pos: pos + 3 * (pos >= at), lambda pos: torch.where(pos >= at, pos - at, pos)
    return float(sum((seen & ~moves(moved(scheme, change))).sum().item() for change in (skip, restart)))
