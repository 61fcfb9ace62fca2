"""A scheme: how position enters one attention layer, as an immutable record of stages."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, reduce

import torch
from torch import Tensor, nn

from .branch import Branch
from .errors import UsageError
from .layout import Coordinates, Layout
from .patterns import Both, Causal, Either, Everywhere, Pattern
from .plan import Plan, visible
from .stages import Embedding, Needs, PositionMap, Rotation, ScoreTerm, Temperature, ValueTerm

_CHUNK = 1024
"""Queries per block when visible keys are counted, so that counting stays linear in memory."""


class Scheme(nn.Module):
    """How position enters one attention layer. Immutable; one instance may serve many layers, which then share weights.

    Two named positions: `positions` maps order to what rotation and score terms see, `embedding_positions` to what the
    embedding sees (the same by default; BiPE, arXiv:2401.16421, needs two).

    With `branches`, each scores its own region of the plane at its own positions, and what no region shows is not seen.

    Raises UsageError where the stages contradict each other.
    """

    def __init__(
        self,
        *,
        positions: PositionMap | None = None,
        embedding: Embedding | None = None,
        embedding_positions: PositionMap | None = None,
        rotation: Rotation | None = None,
        terms: Sequence[ScoreTerm] = (),
        value_terms: Sequence[ValueTerm] = (),
        pattern: Pattern | None = None,
        branches: Sequence[Branch] = (),
        temperature: Temperature | None = None,
    ):
        super().__init__()
        self.positions, self.embedding_positions = positions, embedding_positions
        self.embedding, self.rotation, self.temperature = embedding, rotation, temperature
        self.terms, self.value_terms = nn.ModuleList(terms), nn.ModuleList(value_terms)
        self.pattern = pattern if pattern is not None else Causal()
        self.branches = tuple(branches)
        if self.branches and self.needs >= Needs.SCORES:
            raise UsageError(
                f"A term that needs {self.needs.name.lower()} reads one plane of scores, and this scheme has "
                f"{len(self.branches)} branches. Use it without branches."
            )
        if rotation is not None and rotation.causal_only and not self.pattern.causal:
            raise UsageError(
                f"{type(rotation).__name__} amplifies keys behind the query, so its pattern must be causal; "
                f"got {self.pattern}. Use Causal(), alone or combined with & as in Causal() & Window(512)."
            )

    @property
    def relative(self) -> bool:
        """Whether adding a constant to all positions changes nothing (declared by the stages)."""
        parts = [*self.terms, *self.value_terms, *self.branches]
        return self.embedding is None and all(t.relative for t in parts)

    @property
    def needs(self) -> Needs:
        """The most that any score term needs to see."""
        return max((t.needs for t in self.terms), default=Needs.DISTANCE)

    @property
    def caches_turned_keys(self) -> bool:
        """Whether the cache may hold keys already turned: one static rotation of them, and nothing else reads keys."""
        content = any(t.needs >= Needs.CONTENT for t in self.terms) or len(self.value_terms) > 0
        one_key = len({b.keys for b in self.branches}) <= 1
        return self.rotation is not None and self.rotation.cacheable and not content and one_key

    def with_pattern(self, pattern: Pattern) -> "Scheme":
        """The same stages, weights shared, under another pattern."""
        return Scheme(
            positions=self.positions,
            embedding=self.embedding,
            embedding_positions=self.embedding_positions,
            rotation=self.rotation,
            terms=tuple(self.terms),
            value_terms=tuple(self.value_terms),
            pattern=pattern,
            branches=self.branches,
            temperature=self.temperature,
        ).train(self.training)

    def position(self, idx: Tensor, tokens: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """int64 [B|1, T] -> (what attention sees, what the embedding sees), each [B|1, T]."""
        pos = idx if self.positions is None else self.positions(idx, tokens)
        own = self.embedding_positions
        return pos, pos if own is None else own(idx, tokens)

    def turn_queries(self, q: Tensor, layout: Layout) -> Tensor:
        """[B, H, Q, D] turned at the layout's positions. More than `rotation.reach` of them must be cut: see `blocks`."""
        return q if self.rotation is None else self._turn(q, layout, layout.q, keys=False)

    def turn_keys(self, k: Tensor, layout: Layout) -> Tensor:
        """[B, G, K, D] turned at the layout's positions."""
        return k if self.rotation is None else self._turn(k, layout, layout.k, keys=True)

    def turn_cached_keys(self, k: Tensor, layout: Layout) -> Tensor:
        """New keys [B, G, T, D] as a cache of turned keys holds them (where `caches_turned_keys`)."""
        return self.turn_keys(k, self.branches[0].layout(layout) if self.branches else layout)

    def _turn(self, x: Tensor, layout: Layout, line: Coordinates, keys: bool) -> Tensor:
        turn = self.rotation
        dtype = torch.promote_types(x.dtype, torch.float32)

        def make() -> tuple[Tensor, ...]:
            centre = _unpadded(layout.q, float("-inf")).amax(dim=1, keepdim=True).nan_to_num(neginf=0.0)
            # Padding stands at the centre: were its factors infinite, its gradients would be 0 * inf.
            pos = line.pos.double() if line.valid is None else torch.where(line.valid, line.pos.double(), centre)
            return turn.tables(pos, centre, keys, dtype)

        return turn.turn(x, layout.remember((turn, keys, dtype), make))

    def blocks(self, layout: Layout) -> list[slice]:
        """Cuts of the queries such that none spans more than `rotation.reach` positions."""
        if self.rotation is None or self.rotation.reach is None:
            return [slice(None)]
        return layout.remember((self.rotation, "blocks"), lambda: _cut(layout.q, self.rotation.reach))

    def plan(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        layout: Layout,
        *,
        scale: float | None = None,
        q_streams: tuple[Tensor | None, ...] = (),
        k_streams: tuple[Tensor | None, ...] = (),
        keys_turned: bool = False,
    ) -> Plan:
        """Lowers the scheme on q [B, H, Q, D], k and v [B, G, K, D] standing at `layout`.

        `scale` defaults to D^-1/2. `keys_turned`: `k` comes turned out of a cache.
        """
        heads, groups = q.shape[1], k.shape[1]
        if heads % groups:
            raise UsageError(f"{heads} query heads cannot share {groups} key/value heads evenly; use a divisor of {heads}.")
        scale = scale if scale is not None else q.shape[-1] ** -0.5
        if self.temperature is not None:
            factor = self._temperature(layout)[..., None].to(torch.promote_types(q.dtype, torch.float32))
            q = (q * factor).to(q.dtype)
        lower = lambda layout, pattern: self._lower(q, k, v, layout, pattern, scale, q_streams, k_streams, keys_turned)
        if not self.branches:
            return lower(layout, self.pattern)
        parts = tuple(lower(b.layout(layout), Both(self.pattern, b.region)) for b in self.branches)
        return replace(parts[0], q=q, k=k, layout=layout, pattern=_shown(self.pattern, self.branches), branches=parts)

    def _lower(self, q, k, v, layout, pattern, scale, q_streams, k_streams, keys_turned) -> Plan:
        """The plan of one plane of scores."""
        turned = self.rotation is not None
        return Plan(
            q=self.turn_queries(q, layout),
            k=k if keys_turned else self.turn_keys(k, layout),
            v=v,
            layout=layout,
            pattern=pattern,
            scale=scale,
            terms=tuple(self.terms),
            value_terms=tuple(self.value_terms),
            raw_q=q if turned else None,
            raw_k=k if turned and not keys_turned else None,
            q_streams=q_streams,
            k_streams=k_streams,
        )

    def _temperature(self, layout: Layout) -> Tensor:
        """[B|1, H|1, Q]."""
        pattern = _shown(self.pattern, self.branches)
        seen = layout.remember(("seen", pattern), lambda: keys_seen(layout, pattern))
        return layout.remember((self.temperature, "factor"), lambda: self.temperature(seen))


def keys_seen(layout: Layout, pattern: Pattern) -> Tensor:
    """How many keys each query sees, float64 [B|1, Q]; at least 1, so that padding stays finite."""
    if isinstance(pattern, Causal):
        return (layout.q.idx + 1).clamp_min(1).double()
    rows = (slice(r, r + _CHUNK) for r in range(0, layout.q.tokens, _CHUNK))
    counts = [visible(Layout(layout.q.take(r), layout.k), pattern)[:, 0].sum(-1) for r in rows]
    return torch.cat(counts, dim=1).clamp_min(1).double()


@cache
def _shown(pattern: Pattern, branches: tuple[Branch, ...]) -> Pattern:
    """What some branch shows. Regions that together are all of a causal pattern are not recognised as such."""
    return pattern if not branches else Both(pattern, reduce(Either, (b.region for b in branches)))


def _cut(line: Coordinates, reach: int) -> list[slice]:
    if line.is_run:
        return [slice(a, min(a + reach, line.tokens)) for a in range(0, line.tokens, reach)]
    low, high = _unpadded(line, float("inf")), _unpadded(line, float("-inf"))
    cuts, start = [], 0
    while start < line.tokens:
        span = high[:, start:].cummax(1).values - low[:, start:].cummin(1).values
        wide = (span > reach).any(0)
        stop = start + int(wide.long().argmax()) if bool(wide.any()) else line.tokens
        cuts.append(slice(start, stop))
        start = stop
    return cuts


def _unpadded(line: Coordinates, fill: float) -> Tensor:
    """Positions float64 [B|1, T], `fill` on padding."""
    pos = line.pos.double()
    return pos if line.valid is None else pos.masked_fill(~line.valid, fill)


def compose(*schemes: Scheme) -> Scheme:
    """One scheme with the stages of all: terms add up, patterns intersect. At most one may bring each other stage.

    `compose(rope, alibi, window)` is `Scheme(rotation=..., terms=[...], pattern=...)`.
    """

    def only(stage: str):
        found = [s for s in schemes if getattr(s, stage) is not None]
        if len(found) > 1:
            names = " and ".join(type(getattr(s, stage)).__name__ for s in found)
            raise UsageError(f"A scheme has one {stage.replace('_', ' ')} stage, got {len(found)}: {names}. Keep one of them.")
        return getattr(found[0], stage) if found else None

    return Scheme(
        positions=only("positions"),
        embedding=only("embedding"),
        embedding_positions=only("embedding_positions"),
        rotation=only("rotation"),
        terms=[t for s in schemes for t in s.terms],
        value_terms=[t for s in schemes for t in s.value_terms],
        pattern=meet([s.pattern for s in schemes]),
        branches=_only_branches(schemes),
        temperature=only("temperature"),
    )


def _only_branches(schemes: Sequence[Scheme]) -> tuple[Branch, ...]:
    found = [s.branches for s in schemes if s.branches]
    if len(found) > 1:
        raise UsageError(f"A scheme has one set of branches, got {len(found)}. Keep one of them.")
    return found[0] if found else ()


def meet(patterns: Sequence[Pattern]) -> Pattern:
    """The intersection of patterns, without repeating what is already implied.

    Plain `Causal` is every scheme's default, so it yields to a part that asks for `Everywhere`.
    """
    asked = [p for p in dict.fromkeys(patterns) if not isinstance(p, Causal | Everywhere)]
    if not asked:
        return Everywhere() if Everywhere() in patterns else Causal()
    implied = any(p.causal for p in asked) or Causal() not in patterns
    result = asked[0] if implied else Both(Causal(), asked[0])
    for p in asked[1:]:
        result = Both(result, p)
    return result
