"""What decoding keeps: raw keys, values, order, positions, documents and streams, in buffers that grow by doubling."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .errors import UsageError
from .layout import Coordinates
from .scheme import Scheme


class Buffer:
    """A tensor that grows along one dimension without being copied at every step."""

    def __init__(self, dim: int):
        self.dim, self.length, self.data = dim, 0, None

    def append(self, x: Tensor) -> Tensor:
        """Everything appended so far, `x` last: a view."""
        need = self.length + x.shape[self.dim]
        if self.data is None or need > self.data.shape[self.dim]:
            shape = list(x.shape)
            shape[self.dim] = max(need, 2 * self.length, 64)
            grown = x.new_empty(shape)
            if self.length:
                grown.narrow(self.dim, 0, self.length).copy_(self.view())
            self.data = grown
        self.data.narrow(self.dim, self.length, x.shape[self.dim]).copy_(x)
        self.length = need
        return self.view()

    def view(self) -> Tensor:
        return self.data.narrow(self.dim, 0, self.length)


class LayerCache:
    """Keys [B, G, T, D], values and term streams of one layer. Keys are turned only where the scheme says they may be."""

    def __init__(self, scheme: Scheme):
        self.turned = scheme.caches_turned_keys
        self.k, self.v = Buffer(2), Buffer(2)
        self._streams = [Buffer(1) for _ in scheme.terms]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """New keys and values -> all of them."""
        return self.k.append(k), self.v.append(v)

    def carry(self, term: int) -> Tensor | None:
        """The last entry of a term's stream [B, 1, S], None at the start."""
        stream = self._streams[term]
        return None if stream.length == 0 else stream.view()[:, -1:]

    def append_streams(self, streams: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        """New entries -> all of them, per term."""
        return tuple(None if s is None else b.append(s) for b, s in zip(self._streams, streams, strict=True))


class Cache:
    """The state of decoding with one model: shared coordinates, one `LayerCache` per layer."""

    def __init__(self, schemes: Sequence[Scheme]):
        self.layers, self._schemes = [LayerCache(s) for s in schemes], tuple(schemes)
        self._tokens, self._doc, self._valid = Buffer(1), Buffer(1), Buffer(1)
        self._pos = {s: Buffer(1) for s in schemes}
        self._ragged = self._documents = False

    def belongs_to(self, schemes: Sequence[Scheme]) -> bool:
        """Whether it was made for these very layers."""
        return len(schemes) == len(self._schemes) and all(a is b for a, b in zip(schemes, self._schemes, strict=True))

    @property
    def length(self) -> int:
        """Tokens held, padding included."""
        return self._tokens.length

    def extend(self, tokens: Tensor, valid: Tensor | None, doc: Tensor | None) -> tuple[Coordinates, Coordinates, Tensor]:
        """Takes in new tokens [B, T]; returns the coordinates of the new ones and of all, positions still equal to order,
        and all tokens. Without `doc` they continue the last document of their row."""
        if self.length and tokens.shape[0] != self._tokens.view().shape[0]:
            raise UsageError(
                f"The cache holds {self._tokens.view().shape[0]} rows, got {tokens.shape[0]}. Start a new cache for another batch."
            )
        start = self.length
        every = self._tokens.append(tokens)
        mask = self._valid.append(torch.ones_like(tokens, dtype=torch.bool) if valid is None else valid)
        docs = self._doc.append(self._last_document(tokens) if doc is None else doc)
        self._ragged |= valid is not None
        self._documents |= doc is not None
        if not (self._ragged or self._documents):
            keys = Coordinates.plain(self.length, device=tokens.device)
        else:
            keys = order(mask if self._ragged else None, docs if self._documents else None)
        return keys.take(slice(start, None)) if start else keys, keys, every

    def _last_document(self, tokens: Tensor) -> Tensor:
        return self._doc.view()[:, -1:].expand_as(tokens) if self._doc.length else torch.zeros_like(tokens)

    def positions(self, scheme: Scheme, pos: Tensor) -> Tensor:
        """Takes in the positions of the new tokens; returns those of all. Rows that agreed may part, whole ones become real."""
        held = self._pos[scheme]
        if held.length:
            old = held.view()
            rows, kind = max(len(old), len(pos)), torch.promote_types(old.dtype, pos.dtype)
            pos = pos.expand(rows, -1).to(kind)
            if (len(old), old.dtype) != (rows, kind):
                self._pos[scheme] = held = Buffer(1)
                held.append(old.expand(rows, -1).to(kind))
        return held.append(pos)


def order(valid: Tensor | None, doc: Tensor | None) -> Coordinates:
    """Coordinates of tokens with padding (`valid` False, bool [B, T]) and documents (`doc`, int64 [B, T]).

    `idx` counts the real tokens of each document from 0 and is -1 on padding. A document's tokens must be adjacent.
    """
    shape = valid if valid is not None else doc
    real = torch.ones_like(shape, dtype=torch.long) if valid is None else valid.long()
    count = real.cumsum(1) - 1
    if doc is not None:
        first = torch.ones_like(doc, dtype=torch.bool)
        first[:, 1:] = doc[:, 1:] != doc[:, :-1]
        before = torch.where(first, count + 1 - real, 0).cummax(1).values
        count = count - before
    idx = count if valid is None else count.masked_fill(~valid, -1)
    return Coordinates(idx, idx, doc, valid)
