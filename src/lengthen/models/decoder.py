"""A decoder-only Transformer to read in one sitting; every layer takes a scheme."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lengthen.backends import attend
from lengthen.core import Cache, Coordinates, LayerCache, Layout, Scheme, Shape, UsageError, order
from lengthen.core.errors import require_count

from .norm import RMSNorm
from .swiglu import SwiGLU


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of a decoder."""

    vocab: int = 256
    """Tokens of the vocabulary."""
    layers: int = 2
    heads: int = 4
    """Query heads."""
    groups: int | None = None
    """Key/value heads (grouped-query attention); None: as many as `heads`."""
    width: int = 64
    """Channels of the residual stream."""
    head_size: int | None = None
    """Channels per head; None: width / heads."""
    hidden: int | None = None
    """Channels of the SwiGLU layer; None: 8/3 of the width, rounded up to a multiple of 8."""
    qk_norm: bool = False
    """RMS-normalise queries and keys per head before they are turned."""
    dropout: float = 0.0
    """Share of channels dropped from each residual branch in training."""
    tied: bool = True
    """The output layer is the embedding, transposed."""

    def __post_init__(self):
        for name in ("vocab", "layers", "heads", "width"):
            require_count("DecoderConfig", name, getattr(self, name), name)
        for name in ("groups", "head_size", "hidden"):
            if getattr(self, name) is not None:
                require_count("DecoderConfig", name, getattr(self, name), name)
        if self.heads % self.kv_heads:
            raise UsageError(
                f"{self.heads} query heads cannot share {self.kv_heads} key/value heads evenly; use a divisor of {self.heads}."
            )
        if self.head_size is None and self.width % self.heads:
            raise UsageError(
                f"A width of {self.width} does not divide into {self.heads} heads; give 'head_size' or another width."
            )
        if not 0 <= self.dropout < 1:
            raise UsageError(f"The 'dropout' of DecoderConfig must lie in [0, 1), got {self.dropout}.")

    @property
    def kv_heads(self) -> int:
        return self.groups if self.groups is not None else self.heads

    @property
    def head_channels(self) -> int:
        return self.head_size if self.head_size is not None else self.width // self.heads

    @property
    def hidden_channels(self) -> int:
        return self.hidden if self.hidden is not None else -(-self.width * 8 // 24) * 8

    def shape(self, train_length: int) -> Shape:
        """What methods may know of this model."""
        return Shape(self.heads, self.kv_heads, self.head_channels, self.width, train_length)


class Attention(nn.Module):
    """Grouped-query attention under a scheme."""

    def __init__(self, config: DecoderConfig, scheme: Scheme):
        super().__init__()
        self.heads, self.groups, self.size = config.heads, config.kv_heads, config.head_channels
        self.scheme, self.attend = scheme, attend
        self.qkv = nn.Linear(config.width, (self.heads + 2 * self.groups) * self.size, bias=False)
        self.out = nn.Linear(self.heads * self.size, config.width, bias=False)
        self.norms = nn.ModuleList(RMSNorm(self.size) for _ in range(2)) if config.qk_norm else None

    def forward(self, x: Tensor, layout: Layout, cache: LayerCache | None, backend: str | None) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (-1, self.size)).transpose(1, 2)
        q, k, v = qkv.split((self.heads, self.groups, self.groups), dim=1)
        if self.norms is not None:
            q, k = self.norms[0](q), self.norms[1](k)
        streams = new = self._streams(x, cache)
        turned = cache is not None and cache.turned
        if cache is not None:
            if turned:
                k = self.scheme.turn_cached_keys(k, layout.part(slice(None), slice(layout.k.tokens - layout.q.tokens, None)))
            k, v = cache.append(k, v)
            streams = cache.append_streams(new)
        y = self.attend(self.scheme, q, k, v, layout, backend=backend, q_streams=new, k_streams=streams, keys_turned=turned)
        return self.out(y.transpose(1, 2).flatten(2))

    def _streams(self, x: Tensor, cache: LayerCache | None) -> tuple[Tensor | None, ...]:
        carry = lambda n: None if cache is None else cache.carry(n)
        return tuple(term.stream(x, carry(n)) for n, term in enumerate(self.scheme.terms))


class Block(nn.Module):
    """Pre-norm attention and SwiGLU, each added to the residual stream."""

    def __init__(self, config: DecoderConfig, scheme: Scheme):
        super().__init__()
        self.attention, self.mlp = Attention(config, scheme), SwiGLU(config.width, config.hidden_channels)
        self.norms = nn.ModuleList(RMSNorm(config.width) for _ in range(2))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, layout: Layout, cache: LayerCache | None, backend: str | None) -> Tensor:
        x = x + self.dropout(self.attention(self.norms[0](x), layout, cache, backend))
        return x + self.dropout(self.mlp(self.norms[1](x)))


class Decoder(nn.Module):
    """Token ids -> next-token logits. `schemes`: one per layer; instances may repeat and then share weights.

    The embedding of the first scheme that has one is applied before the first layer. Own weights depend on `seed` and
    the sizes only, never on the schemes: models compared under one seed start from the same numbers.
    """

    def __init__(self, config: DecoderConfig, schemes: Sequence[Scheme] | Scheme, seed: int = 0):
        super().__init__()
        schemes = [schemes] * config.layers if isinstance(schemes, Scheme) else list(schemes)
        if len(schemes) != config.layers:
            raise UsageError(
                f"The model has {config.layers} layers and got {len(schemes)} schemes; give one per layer, or a single one."
            )
        for scheme in schemes:
            if scheme.rotation is not None and scheme.rotation.size > config.head_channels:
                raise UsageError(
                    f"The rotation turns {scheme.rotation.size} channels, but a head has {config.head_channels}. "
                    "Build the scheme for this model's shape."
                )
        self.config = config
        with torch.random.fork_rng(devices=[]):  # what torch draws here is overwritten below
            self.embed = nn.Embedding(config.vocab, config.width)
            self.blocks = nn.ModuleList(Block(config, s) for s in schemes)
            self.norm = RMSNorm(config.width)
            self.head = nn.Linear(config.width, config.vocab, bias=False)
        if config.tied:
            self.head.weight = self.embed.weight
        self._initialise(torch.Generator().manual_seed(seed))

    def _initialise(self, generator: torch.Generator) -> None:
        """Fan-in scaled normal weights; what writes to the residual stream is divided by sqrt(2 * layers)."""
        depth = (2 * self.config.layers) ** -0.5
        for name, weight in self.named_parameters():
            if ".scheme." in name or weight.dim() < 2:
                continue
            writes = name.endswith(("attention.out.weight", "mlp.down.weight"))
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5 * (depth if writes else 1.0), generator=generator)

    @property
    def schemes(self) -> list[Scheme]:
        """The scheme of each layer."""
        return [b.attention.scheme for b in self.blocks]

    def new_cache(self) -> Cache:
        """An empty cache for this model."""
        return Cache(self.schemes)

    def hidden(
        self,
        ids: Tensor,
        *,
        valid: Tensor | None = None,
        doc: Tensor | None = None,
        cache: Cache | None = None,
        backend: str | None = None,
    ) -> Tensor:
        """int64 [B, T] -> the normalised residual stream [B, T, C].

        valid: bool [B, T], False on padding, on either side. doc: int64 [B, T], document of each token.
        cache: from `new_cache`; `ids` then continue what it holds. Raises UsageError before the cache is touched.
        """
        self._check(ids, valid, doc, cache)
        if cache is not None:
            new, every, history = cache.extend(ids, valid, doc)
        else:
            every = new = (
                Coordinates.plain(ids.shape[1], device=ids.device) if valid is None and doc is None else order(valid, doc)
            )
            history = ids
        layouts, embedding, embedding_pos = {}, None, None
        for scheme in dict.fromkeys(self.schemes):
            at_embedding = self._lay_out(scheme, new, every, history, cache, layouts)
            if embedding is None and scheme.embedding is not None:
                embedding, embedding_pos = scheme.embedding, at_embedding
        x = self.embed(ids) * self.config.width**0.5
        if embedding is not None:
            x = embedding(x, embedding_pos)
        for n, block in enumerate(self.blocks):
            x = block(x, layouts[block.attention.scheme], None if cache is None else cache.layers[n], backend)
        return self.norm(x)

    def _check(self, ids: Tensor, valid: Tensor | None, doc: Tensor | None, cache: Cache | None) -> None:
        """Refuses what would fail, or pass wrongly, further in."""
        if ids.dim() != 2 or ids.dtype != torch.long or not ids.shape[1]:
            raise UsageError(f"Token ids must be int64 [B, T] with at least one token, got {ids.dtype} {list(ids.shape)}.")
        for name, given, kind in (("valid", valid, torch.bool), ("doc", doc, torch.long)):
            if given is not None and (given.shape != ids.shape or given.dtype != kind):
                raise UsageError(
                    f"{name!r} must be {kind} of the shape of the ids, {list(ids.shape)}; got {given.dtype} {list(given.shape)}."
                )
        # Elsewhere than on a CPU, looking at the ids would wait for the device.
        if ids.is_cpu and ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= self.config.vocab):
            raise UsageError(
                f"The ids hold {int(ids.min())} to {int(ids.max())}, and the vocabulary is 0 to {self.config.vocab - 1}. "
                "Use the tokenizer that the model was made for."
            )
        if cache is not None and not cache.belongs_to(self.schemes):
            raise UsageError("The cache was made for another model. Take one from this model's new_cache().")

    @staticmethod
    def _lay_out(scheme, new: Coordinates, every: Coordinates, history: Tensor, cache: Cache | None, layouts: dict) -> Tensor:
        """Files the scheme's layout; returns what its embedding sees, [B|1, T]."""
        maps = [m for m in (scheme.positions, scheme.embedding_positions) if m is not None]
        whole = any(m.reads_tokens for m in maps)
        pos, own = scheme.position(every.idx if whole else new.idx, history if whole else None)
        pos, own = pos[:, -new.tokens :], own[:, -new.tokens :]
        if not maps:
            layouts[scheme] = Layout(new, every)
            return pos
        held = pos if cache is None else cache.positions(scheme, pos)
        layouts[scheme] = Layout(new.at(pos), every.at(held))
        return own

    def forward(self, ids: Tensor, **how) -> Tensor:
        """int64 [B, T] -> logits [B, T, V]; keywords as `hidden`."""
        return self.head(self.hidden(ids, **how))

    def under(self, change) -> "Decoder":
        """This model, weights shared, with each scheme replaced by `change(scheme)`: a control such as a window."""
        swapped = {s: change(s) for s in dict.fromkeys(self.schemes)}
        other = Decoder.__new__(Decoder)
        nn.Module.__init__(other)
        other.config, other.embed, other.norm, other.head = self.config, self.embed, self.norm, self.head
        other.blocks = nn.ModuleList(_reschemed(b, swapped[b.attention.scheme]) for b in self.blocks)
        return other.train(self.training)


def _reschemed(block: Block, scheme: Scheme) -> Block:
    attention = Attention.__new__(Attention)
    nn.Module.__init__(attention)
    attention.__dict__.update({k: v for k, v in block.attention.__dict__.items() if k != "_modules"})
    attention._modules = {**block.attention._modules, "scheme": scheme}
    other = Block.__new__(Block)
    nn.Module.__init__(other)
    other.attention, other.mlp, other.norms, other.dropout = attention, block.mlp, block.norms, block.dropout
    return other
