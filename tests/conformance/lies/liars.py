"""Copies of the honest decoder, each of which lies in one respect; the docstring says in which."""

import torch
from torch import Tensor

from .honest import Held, Honest, HonestSubject, Settings


class StepOneLate(Honest):
    """With a cache, new tokens stand one position too far."""

    def places(self, ids, mask, past):
        return super().places(ids, mask, past) + (past > 0)


class WindowWiderWhileDecoding(Honest):
    """With a cache, the window holds one token more."""

    def visible(self, layer, rows, columns, past):
        away = rows[:, None] - columns
        return (away >= 0) & (away < self.settings.window + (past > 0) if layer == 0 else True)


class HeadsMixedWhileDecoding(Honest):
    """With a cache, query heads take their keys and values in turn, not in blocks."""

    def shared(self, x, past):
        return super().shared(x, past) if not past else x.repeat(1, self.settings.heads // self.settings.groups, 1, 1)


class TurnedKeysOfTheOldLength(Honest):
    """Angles shrink beyond the trained length, and cached keys keep the angles of the length at which they came."""

    def angles(self, places, length):
        stretch = (length.double() / self.settings.length).clamp(min=1)[:, None, None]
        return super().angles(places, length) / stretch

    def keep(self, cache, layer, k, v):
        # Keys are kept turned, and turned back by the angles of the present length, which have changed.
        places, past = cache.places, cache.tokens - k.shape[2]
        tokens = torch.full((len(k),), cache.tokens)
        turned, values = super().keep(cache, layer, self.turn(k, places[:, past:], tokens), v)
        return self.turn(turned, -places, tokens) / self.settings.factor**2, values


class TopLeftCausalChunks(Honest):
    """With a cache, the queries of a chunk see as if they were the first tokens, and all that is old."""

    def visible(self, layer, rows, columns, past):
        seen = super().visible(layer, rows, columns, past)
        return seen | (columns[None] < past + len(rows)) if past and layer else seen


class OnlyTheLastOfAChunk(Honest):
    """With a cache, all but the last of several new tokens are dropped."""

    def forward(self, ids, mask=None, positions=None, cache=None):
        if cache is not None and cache.tokens:
            ids = ids[:, -1:]
            mask = None if mask is None else mask[:, : cache.tokens + 1]
        return super().forward(ids, mask, positions, cache)


class LooksOneAhead(Honest):
    """In the last layer a token sees the next one."""

    def visible(self, layer, rows, columns, past):
        seen = super().visible(layer, rows, columns, past)
        return seen | (columns == rows[:, None] + 1) if layer else seen


class BaseByWholeLength(Honest):
    """Angles shrink with the length of the whole input beyond the trained length."""

    def angles(self, places, length):
        stretch = (length.double() / self.settings.length).clamp(min=1)[:, None, None]
        return super().angles(places, length) / stretch


class BaseByLongestRow(Honest):
    """Angles shrink with the longest row of the batch."""

    def angles(self, places, length):
        return super().angles(places, length) / max(1.0, int(length.max()) / self.settings.length)


class PaddingIsText(Honest):
    """The mask counts positions, and hides nothing."""

    def visible(self, layer, rows, columns, past):
        return super().visible(layer, rows, columns, past)

    def forward(self, ids, mask=None, positions=None, cache=None):
        if mask is not None and positions is None and cache is None:
            positions, mask = self.places(ids, mask.bool(), 0), None
        return super().forward(ids, mask, positions, cache)


class CountsPadding(Honest):
    """The temperature counts the tokens of the padded row, padding included."""

    def temperature(self, seen, length):
        tokens = torch.arange(1, seen.shape[1] + 1) + 0 * seen
        return 1 + tokens.float() / 40


class StepsShareOnePosition(Honest):
    """With a cache, every row takes the position of the longest row."""

    def places(self, ids, mask, past):
        own = super().places(ids, mask, past)
        return own.amax(0, keepdim=True).expand_as(own) if past else own


class MaskedPathIsSofter(Honest):
    """A mask that hides nothing makes attention softer."""

    def forward(self, ids, mask=None, positions=None, cache=None):
        self.masked = mask is not None
        return super().forward(ids, mask, positions, cache)

    def temperature(self, seen, length):
        return super().temperature(seen, length) * (0.9 if self.masked else 1.0)


class OneDocument(Honest):
    """Documents are never told apart."""

    def documents(self, places, mask):
        return torch.zeros_like(places)


class OneDocumentUnderAMask(Honest):
    """Documents are told apart only where no mask is given."""

    def documents(self, places, mask):
        return super().documents(places, mask) if mask is None else torch.zeros_like(places)


class GapsAreBorders(Honest):
    """A jump of the positions begins a document."""

    def documents(self, places, mask):
        jumps = (places[:, 1:] - places[:, :-1]) != 1
        padding = torch.zeros_like(jumps) if mask is None else ~mask.bool()[:, 1:]
        return torch.nn.functional.pad((jumps & ~padding).long(), (1, 0)).cumsum(1)


class IgnoresPositions(Honest):
    """Position ids are accepted and dropped; documents are still told apart by them."""

    def angles(self, places, length):
        return super().angles(torch.arange(places.shape[1]).expand_as(places), length)


class DropsOut(Honest):
    """Dropout in evaluation mode."""

    def biased(self, scores, past):
        return torch.nn.functional.dropout(scores, 0.01, training=True)


class RemembersTheLongest(Honest):
    """Angles shrink by the longest text that was ever read."""

    longest = 0

    def angles(self, places, length):
        self.longest = max(self.longest, int(length.max()))
        return super().angles(places, length) / max(1.0, self.longest / self.settings.length)


class Wraps(Honest):
    """Positions are taken modulo the declared length."""

    def angles(self, places, length):
        return super().angles(places % self.settings.length, length)


class RotaryInTheTypeOfX(Honest):
    """Angles are computed in the type of the queries."""

    def turn(self, x, places, length):
        angles = self.angles(places, length).to(x.dtype)
        frequencies = self.angles(torch.ones(1, 1), length[:1]).to(x.dtype)
        (cos, sin), (a, b) = self.tables(places[..., None].to(x.dtype) * frequencies + 0 * angles, x), x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class PositionsInFloat16(Honest):
    """Positions pass through float16 where the model is in float16."""

    def turn(self, x, places, length):
        return super().turn(x, places.half() if x.dtype == torch.float16 else places, length)


class AnglesByMatmul(Honest):
    """Angles are an outer product by matmul, which autocast runs in half precision."""

    def angles(self, places, length):
        one = super().angles(torch.ones(1, 1), length[:1]).float()[0]
        return (places[..., None].float() @ one).double()


class KeyIndexBiasInHalf(Honest):
    """ALiBi as slope times key index in the type of the weights."""

    def biased(self, scores, past):
        kind = self.embed.weight.dtype
        slopes = torch.tensor([0.5, 0.25, 0.0625, 0.03], dtype=kind)
        return scores + (slopes[:, None, None] * torch.arange(scores.shape[-1], dtype=kind)).float()


class FactorTwice(Honest):
    """The attention factor is applied to queries and keys as if each carried the whole."""

    def tables(self, angles, x):
        return tuple(t * self.settings.factor for t in super().tables(angles, x))


class AnotherBase(Honest):
    """The base that runs is not the one that is set."""

    def angles(self, places, length):
        s = self.settings
        return places[..., None].double() * 400.0 ** (-torch.arange(0, s.size, 2, dtype=torch.float64) / s.size)


class LosesBase(HonestSubject):
    """The base is not in the file, and comes back as a default."""

    def read(self, folder):
        return {**super().read(folder), "base": 10_000.0}


class LosesLength(HonestSubject):
    """The trained length is not in the file, and comes back as twice as much; short texts do not tell."""

    def read(self, folder):
        return {**super().read(folder), "length": 128}


class ClampedTable(Honest):
    """Positions are embedded by a table, and those beyond it take its last row."""

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.table = torch.nn.Embedding(settings.length, settings.width)
        torch.nn.init.normal_(self.table.weight, generator=torch.Generator().manual_seed(1))

    def forward(self, ids, mask=None, positions=None, cache: Held | None = None) -> Tensor:
        past = 0 if cache is None else cache.tokens
        full = mask.bool() if mask is not None else torch.ones(len(ids), past + ids.shape[1], dtype=torch.bool)
        places = positions if positions is not None else self.places(ids, full, past)
        self.row = self.table(places.clamp(max=self.settings.length - 1))
        return super().forward(ids, mask, positions, cache)

    def attend(self, layer, x, *rest):
        return super().attend(layer, x + self.row if layer == 0 else x, *rest)
