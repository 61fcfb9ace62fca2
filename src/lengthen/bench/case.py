"""One attention to be measured: its sizes, and the random tensors that stand for it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthen.core import Coordinates, Layout, Scheme, Shape, build

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}

PASSES = {
    "forward": "one forward pass, without gradients",
    "backward": "forward and backward into queries, keys and values; the encoding's weights are fixed",
    "learned": "forward and backward, with the gradient into the encoding's weights",
    "decode": "one new query over all keys, which the cache holds as its scheme allows",
}
"""What is timed, by name."""


@dataclass(frozen=True)
class Case:
    """What one row measures; every field is plain data, so that another process can be asked to do it."""

    method: str
    """A spec, such as `rope+window:tokens=512`."""
    backend: str | None
    """None: the one that attention chooses."""
    dtype: str
    length: int
    """Keys, and queries but in decoding."""
    kind: str
    """A name of PASSES."""
    batch: int = 1
    heads: int = 8
    groups: int = 8
    head_size: int = 64
    layers: int = 1
    """Attentions that share one layout, and so their tables, in a forward pass."""
    train_length: int = 1024
    """What the encoding is built for."""
    device: str = "cpu"

    @property
    def queries(self) -> int:
        return 1 if self.kind == "decode" else self.length

    @property
    def backward(self) -> bool:
        return self.kind in ("backward", "learned")

    def scheme(self) -> Scheme:
        """The encoding, with weights that learn or do not, as the pass asks."""
        width = self.heads * self.head_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            scheme = build(self.method, Shape(self.heads, self.groups, self.head_size, width, self.train_length))
        return scheme.eval().requires_grad_(self.kind == "learned").to(self.device)

    def scene(self) -> "Scene":
        """Standard normal tensors of these sizes, the same for every method."""
        generator = torch.Generator().manual_seed(0)
        draw = lambda *shape: torch.randn(*shape, generator=generator).to(self.device, DTYPES[self.dtype])
        q = draw(self.batch, self.heads, self.queries, self.head_size)
        k, v = (draw(self.batch, self.groups, self.length, self.head_size) for _ in range(2))
        x = draw(self.batch, self.length, self.heads * self.head_size).float()
        ids = torch.randint(256, (self.batch, self.length), generator=generator).to(self.device)
        return Scene(*(t.requires_grad_(self.backward) for t in (q, k, v)), x, draw(*q.shape), ids)


@dataclass(frozen=True)
class Scene:
    """Tensors of one attention."""

    q: Tensor
    """[B, H, Q, D]: the last Q tokens."""
    k: Tensor
    """[B, G, K, D]."""
    v: Tensor
    """[B, G, K, D]."""
    x: Tensor
    """[B, K, C], the residual stream that terms of content read, float32."""
    grad: Tensor
    """[B, H, Q, D], the gradient of the output."""
    ids: Tensor
    """int64 [B, K], which some positions depend on."""

    def layout(self, scheme: Scheme) -> Layout:
        """Where these tokens stand under a scheme; anew for every forward pass, as in a model."""
        line = Coordinates.plain(self.ids.shape[1], device=self.ids.device)
        if scheme.positions is not None:
            line = line.at(scheme.position(line.idx, self.ids)[0])
        queries = self.q.shape[2]
        return Layout(line if queries == line.tokens else line.take(slice(line.tokens - queries, line.tokens)), line)

    def streams(self, scheme: Scheme, dtype: torch.dtype = torch.float32) -> dict[str, tuple[Tensor | None, ...]]:
        """What terms of content read, as keywords of `attend`."""
        every = tuple(term.stream(self.x.to(dtype), None) for term in scheme.terms)
        return {"q_streams": tuple(None if s is None else s[:, -self.q.shape[2] :] for s in every), "k_streams": every}
