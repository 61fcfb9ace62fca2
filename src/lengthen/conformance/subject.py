"""What is under check: a way to make schemes, and the small models that carry them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from lengthen.core import Coordinates, Layout, Plan, PositionMap, Scheme, Shape, compose, methods, order, parse
from lengthen.core.errors import UsageError
from lengthen.models import Decoder, DecoderConfig

SIZES = DecoderConfig(vocab=50, layers=2, heads=4, groups=2, width=48, head_size=16)
"""Small, with grouped queries, and with no two sizes alike that a method might confuse."""
TRAIN_LENGTH = 16
"""Tokens; the sequences of the checks are longer."""
TABLE_LENGTH = 64
"""Tokens, for methods that have no answer beyond their table; the sequences of the checks are shorter."""


@dataclass(frozen=True)
class Subject:
    """A method under check."""

    name: str
    make: Callable[[Shape], Scheme]
    """A fresh scheme for a model of that shape."""
    seed: int = 0
    limited: bool = False
    """Whether a LengthError beyond `train_length` is an answer."""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def train_length(self) -> int:
        return TABLE_LENGTH if self.limited else TRAIN_LENGTH

    def generator(self, salt: int = 0) -> torch.Generator:
        return torch.Generator().manual_seed(1000 * self.seed + salt)

    def fresh(self, salt: int = 0, sizes: DecoderConfig = SIZES) -> Scheme:
        """A scheme as its author initialises it, in float32."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1000 * self.seed + salt)
            return self.make(sizes.shape(self.train_length)).eval()

    def scheme(self, salt: int = 0, sizes: DecoderConfig = SIZES) -> Scheme:
        """A scheme in float64, its parameters moved away from special values such as zero."""
        return stir(self.fresh(salt, sizes), self.generator(salt)).double()

    def decoder(self, scheme: Scheme | None = None, sizes: DecoderConfig = SIZES) -> Decoder:
        """A model in float64 and evaluation mode; its own weights depend on the seed only."""
        return Decoder(sizes, scheme if scheme is not None else self.scheme(sizes=sizes), self.seed).double().eval()

    def ids(self, tokens: int, rows: int = 2, salt: int = 0) -> Tensor:
        """Random token ids, int64 [rows, tokens]."""
        return torch.randint(0, SIZES.vocab, (rows, tokens), generator=self.generator(77 + salt))


def stir(module: nn.Module, generator: torch.Generator) -> nn.Module:
    """Adds a normal of deviation 1/4 to every parameter, so that a table of zeros cannot hide a fault."""
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.25 * torch.randn(p.shape, generator=generator).to(p.dtype))
    return module


class Moved(PositionMap):
    """The positions of a scheme, moved by `change`."""

    def __init__(self, inner: PositionMap | None, change: Callable[[Tensor], Tensor]):
        super().__init__()
        self.inner, self.change = inner, change
        self.reads_tokens = inner is not None and inner.reads_tokens

    def forward(self, idx: Tensor, tokens: Tensor | None = None) -> Tensor:
        return self.change(idx if self.inner is None else self.inner(idx, tokens))


def moved(scheme: Scheme, change: Callable[[Tensor], Tensor]) -> Scheme:
    """The same scheme, weights shared, with what attention and embedding see moved."""
    own = scheme.embedding_positions
    other = scheme.with_pattern(scheme.pattern)
    other.positions = Moved(scheme.positions, change)
    other.embedding_positions = None if own is None else Moved(own, change)
    return other


@dataclass(frozen=True)
class Stage:
    """Queries, keys, values and the residual stream of one attention, standing at a layout."""

    q: Tensor
    k: Tensor
    v: Tensor
    x: Tensor
    layout: Layout

    @property
    def leaves(self) -> tuple[Tensor, ...]:
        return self.q, self.k, self.v, self.x

    def streams(self, scheme: Scheme) -> dict[str, tuple[Tensor | None, ...]]:
        """The streams of the scheme's terms, as keywords of `Scheme.plan`."""
        every = tuple(term.stream(self.x, None) for term in scheme.terms)
        new = self.layout.q.tokens
        return {"q_streams": tuple(None if s is None else s[:, -new:] for s in every), "k_streams": every}

    def plan(self, scheme: Scheme) -> Plan:
        """The scheme's attention here, uncut."""
        return scheme.plan(self.q, self.k, self.v, self.layout, **self.streams(scheme))

    def to(self, dtype: torch.dtype) -> "Stage":
        return Stage(*(t.to(dtype) for t in self.leaves), Layout(self.layout.q, self.layout.k))

    def leaf(self, requires_grad: bool) -> "Stage":
        """A copy outside any graph."""
        copies = (t.clone().requires_grad_(requires_grad) for t in self.leaves)
        return Stage(*copies, Layout(self.layout.q, self.layout.k))


def stage(subject: Subject, scheme: Scheme, line: Coordinates, queries: int, sizes: DecoderConfig = SIZES) -> Stage:
    """Random tensors in float64 for the last `queries` tokens of `line`, at the positions that the scheme gives them."""
    g, rows, tokens, head = subject.generator(5), 2, line.tokens, sizes.head_channels
    draw = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)
    keys = line.at(scheme.position(line.idx, subject.ids(tokens, rows))[0])
    q = draw(rows, sizes.heads, tokens, head)[:, :, -queries:].contiguous()
    k, v = draw(rows, sizes.kv_heads, tokens, head), draw(rows, sizes.kv_heads, tokens, head)
    layout = Layout(keys.take(slice(tokens - queries, None)), keys)
    return Stage(q, k, v, draw(rows, tokens, sizes.width), layout)


def lines(tokens: int) -> dict[str, Coordinates]:
    """Two rows, as they come: plain, padded on the left, packed with documents of different lengths."""
    column = torch.arange(tokens)
    valid = torch.stack((column >= 0, column >= 7))
    doc = torch.stack(((column > 8).long() + (column > 20), (column > 4).long()))
    return {"plain": Coordinates.plain(tokens), "padded": order(valid, None), "packed": order(None, doc)}


def subject(spec: str, options: Mapping[str, Any] | None = None, seed: int = 0) -> Subject:
    """The subject of a method spec. `options` are those of its last method.

    A method that acts on another encoding (a window, a temperature) is put onto RoPE where the spec names no other.
    """
    parts = parse(spec)
    if options:
        parts[-1] = (parts[-1][0], {**parts[-1][1], **options})
    if all(m.modifies for m, _ in parts):
        parts = [*parse("rope"), *parts]
    settings = ",".join(f"{k}={v}" for k, v in (options or {}).items())
    name = "+".join(m.name for m, _ in parts) if len(parts) > len(parse(spec)) else spec
    return Subject(
        name=f"{name}:{settings}" if settings else name,
        make=lambda shape: compose(*(m.build(shape, **given) for m, given in parts)),
        seed=seed,
        limited=any(m.limited for m, _ in parts),
        options=dict(options or {}),
    )


def cases(names: Iterable[str] | None = None, seed: int = 0) -> list[Subject]:
    """The subjects of the named methods, or of all: the defaults and each variant that the method declares."""
    known = methods()
    found = []
    for name in names if names is not None else known:
        variants = known[name].variants if name in known else ()
        found += [subject(name, options, seed) for options in ({}, *variants)]
    if not found:
        raise UsageError("There is no method to check; name at least one, as in check_method('rope').")
    return found
