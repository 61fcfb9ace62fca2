"""A small decoder that is right in every respect the suite checks, in pieces that a liar can replace one at a time.

Grouped-query attention with RoPE, YaRN's attention factor, a sliding window and a log-length temperature. A document ends
where positions restart. Keys are cached raw and turned at every step.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from lengthen.conformance.model.declared import Compared
from lengthen.conformance.model.subject import Facts, Subject, chunks


@dataclass
class Settings:
    """Sizes and rules."""

    vocab: int = 48
    width: int = 32
    heads: int = 4
    groups: int = 2
    size: int = 8
    layers: int = 2
    base: float = 500.0
    factor: float = 1.2
    """Multiplies queries and keys alike."""
    window: int = 12
    """Tokens that a query sees, itself included, in the first layer; the others see everything."""
    length: int = 64
    """Tokens from which on the temperature grows."""


class Held:
    """What a cache holds: raw keys and values by layer, and the coordinates of the keys."""

    def __init__(self):
        self.kv: dict[int, tuple[Tensor, Tensor]] = {}
        self.places = self.docs = self.order = None
        self.tokens = 0


class Honest(nn.Module):
    """int64 ids [B, T] -> logits [B, T, V]."""

    def __init__(self, settings: Settings):
        super().__init__()
        s = self.settings = settings
        linear = lambda a, b: nn.Linear(a, b, bias=False)
        self.embed = nn.Embedding(s.vocab, s.width)
        self.qkv = nn.ModuleList(linear(s.width, (s.heads + 2 * s.groups) * s.size) for _ in range(s.layers))
        self.out = nn.ModuleList(linear(s.heads * s.size, s.width) for _ in range(s.layers))
        self.head = linear(s.width, s.vocab)
        generator = torch.Generator().manual_seed(0)
        for p in self.parameters():
            nn.init.normal_(p, std=1.0 if p is self.embed.weight else 1.3 * p.shape[-1] ** -0.5, generator=generator)

    def places(self, ids: Tensor, mask: Tensor, past: int) -> Tensor:
        """Positions [B, T] of new tokens from a mask [B, past + T]: counted from the first token that is no padding."""
        return (mask.long().cumsum(1) - 1).clamp(min=0)[:, past:]

    def documents(self, places: Tensor, mask: Tensor | None) -> Tensor:
        """The number of the document [B, T] of each token: another one where positions restart."""
        return torch.nn.functional.pad((places[:, 1:] < places[:, :-1]).long(), (1, 0)).cumsum(1)

    def angles(self, places: Tensor, length: Tensor) -> Tensor:
        """Radians, float64 [B, T, D/2]."""
        s = self.settings
        return places[..., None].double() * s.base ** (-torch.arange(0, s.size, 2, dtype=torch.float64) / s.size)

    def tables(self, angles: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [B, 1, T, D/2] in the type of x."""
        cast = lambda t: (t * self.settings.factor).to(x.dtype)[:, None]
        return cast(angles.cos()), cast(angles.sin())

    def turn(self, x: Tensor, places: Tensor, length: Tensor) -> Tensor:
        """Pairs (i, i + D/2) of [B, H, T, D] turned."""
        (cos, sin), (a, b) = self.tables(self.angles(places, length), x), x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def visible(self, layer: int, rows: Tensor, columns: Tensor, past: int) -> Tensor:
        """Whether queries at idx `rows` [T] see keys at idx `columns` [K]: causal, and within the window in the first layer."""
        away = rows[:, None] - columns
        return (away >= 0) & (away < self.settings.window if layer == 0 else True)

    def temperature(self, seen: Tensor, length: Tensor) -> Tensor:
        """What multiplies q . k: 1 up to the trained length, then the logarithm of the tokens seen over that of the length."""
        return (seen.clamp(min=self.settings.length).double().log() / torch.tensor(float(self.settings.length)).log()).float()

    def shared(self, x: Tensor, past: int) -> Tensor:
        """Keys or values [B, G, K, D] for each query head."""
        return x.repeat_interleave(self.settings.heads // self.settings.groups, dim=1)

    def keep(self, cache: Held, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Appends to the cache, and gives all that it holds."""
        if layer in cache.kv:
            k, v = (torch.cat(pair, 2) for pair in zip(cache.kv[layer], (k, v), strict=True))
        cache.kv[layer] = k, v
        return k, v

    def forward(self, ids, mask=None, positions=None, cache: Held | None = None) -> Tensor:
        held = cache if cache is not None else Held()
        past, tokens = held.tokens, ids.shape[1]
        full = mask.bool() if mask is not None else torch.ones(len(ids), past + tokens, dtype=torch.bool)
        places = positions if positions is not None else self.places(ids, full, past)
        every = places if held.places is None else torch.cat((held.places, places), 1)
        held.places, held.tokens = every, past + tokens
        docs, order = self.documents(every, mask), full.long().cumsum(1)
        same = (docs[:, past:, None] == docs[:, None]) & full[:, None]
        x = self.embed(ids)
        for layer in range(self.settings.layers):
            x = x + self.attend(layer, x, places, every, same, order, held, past)
        return self.head(x)

    def attend(self, layer, x, places, every, same, order, held, past) -> Tensor:
        s, length = self.settings, order[:, -1]
        new = self.qkv[layer](x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()).unflatten(-1, (-1, s.size)).transpose(1, 2)
        q, k, v = new.split((s.heads, s.groups, s.groups), dim=1)
        k, v = self.keep(held, layer, k, v)
        keys, values = (self.shared(t, past) for t in (self.turn(k, every, length), v))
        seen = self.temperature(order[:, past:], length).to(x.dtype)[:, None, :, None]
        scores = (self.turn(q, places, length) @ keys.transpose(-1, -2)).float() * (seen * s.size**-0.5)
        scores = self.biased(scores, past)
        idx = torch.arange(held.tokens)
        open_ = same & self.visible(layer, idx[past:], idx, past)
        # A padded row that sees nothing gets weights of zero, not nan.
        weights = scores.masked_fill(~open_[:, None], -torch.inf).softmax(-1).nan_to_num(0.0).to(x.dtype)
        return self.out[layer]((weights @ values).transpose(1, 2).flatten(2))

    def biased(self, scores: Tensor, past: int) -> Tensor:
        """Nothing is added."""
        return scores


class HonestSubject(Subject):
    """How the suite calls it. `limits`: changes of its facts."""

    def __init__(self, model: Honest, **limits):
        self.model, self.name, self.limits = model.eval(), type(model).__name__, limits

    @property
    def facts(self) -> Facts:
        s = self.model.settings
        return Facts(s.vocab, s.length, switches=(s.window, s.length), **self.limits)

    def logits(self, ids, mask=None, positions=None) -> Tensor:
        return self.model(ids, mask, positions).double()

    def decode(self, ids, sizes, mask=None) -> Tensor:
        cache, found = Held(), []
        for part in chunks(ids.shape[1], sizes):
            found.append(self.model(ids[:, part], None if mask is None else mask[:, : part.stop], cache=cache).double())
        return torch.cat(found, dim=1)

    def carrying(self, model: Honest) -> Subject:
        return type(self)(model, **self.limits)

    def configuration(self) -> str:
        return json.dumps(asdict(self.model.settings))

    def reloaded(self, folder: Path) -> Subject:
        save_file(self.model.state_dict(), folder / "weights.safetensors")
        (folder / "config.json").write_text(self.configuration())
        other = type(self.model)(Settings(**self.read(folder)))
        other.load_state_dict(load_file(folder / "weights.safetensors"))
        return self.carrying(other)

    def read(self, folder: Path) -> dict:
        """The settings of a saved model."""
        return json.loads((folder / "config.json").read_text())

    def spectra(self) -> list[Compared]:
        """What the tables hold at position 1, against base and factor."""
        s, one = self.model.settings, torch.ones(1, 1, dtype=torch.long)
        cos, sin = self.model.tables(self.model.angles(one, one[:, 0]), torch.zeros(1, dtype=torch.float64))
        exact = s.base ** (-torch.arange(0, s.size, 2, dtype=torch.float64) / s.size)
        running, multiplier = torch.atan2(sin, cos).flatten(), (cos**2 + sin**2).max().item()
        return [Compared("tables", ((running - exact) / exact).abs().max().item(), abs(multiplier / s.factor**2 - 1))]
