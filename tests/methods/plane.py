"""The (query, key) plane of a scheme with branches, and attention computed pair by pair at given distances."""

import math

import numpy as np
import torch

from lengthen.backends import attend
from lengthen.core import Geometric, Scheme, compose
from lengthen.methods.rope import Rotary

SIZE, BASE = 8, 100.0
"""Channels and base of the rotation under test."""


def distances(scheme: Scheme, tokens: int) -> np.ndarray:
    """float64 [tokens, tokens]: what each query takes each key's distance for, nan where it does not see it."""
    i = torch.arange(tokens)
    found, times = np.full((tokens, tokens), np.nan), np.zeros((tokens, tokens), dtype=int)
    for b in scheme.branches:
        shown = (scheme.pattern(i[:, None], i[None]) & b.region(i[:, None], i[None])).numpy()
        apart = (b.queries(i)[:, None].double() - b.keys(i)[None].double()).numpy()
        found[shown], times = apart[shown], times + shown
    assert times.max() <= 1, "two branches show the same pair"
    return found


def rows(*published: str) -> np.ndarray:
    """Rows of a published triangle, numbers apart by blanks -> the square with nan above the diagonal."""
    square = np.full((len(published), len(published)), np.nan)
    for n, row in enumerate(published):
        numbers = [np.nan if x == "-" else float(x) for x in row.split()]
        square[n, : len(numbers)] = numbers
    return square


def attended(scheme: Scheme, tokens: int, backend: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(what lengthen computes with RoPE under the scheme, the same pair by pair at `distances`), each [tokens, SIZE]."""
    g = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, 1, tokens, SIZE, dtype=torch.float64, generator=g) for _ in range(3))
    rope = Scheme(rotation=Rotary(Geometric(BASE), SIZE, interleaved=False))
    out = attend(compose(rope, scheme), q, k, v, backend=backend)[0, 0].numpy()
    return out, by_pairs(q[0, 0].numpy(), k[0, 0].numpy(), v[0, 0].numpy(), distances(scheme, tokens))


def by_pairs(q: np.ndarray, k: np.ndarray, v: np.ndarray, apart: np.ndarray) -> np.ndarray:
    """softmax(q R(apart) k / sqrt(SIZE)) v in float64, a loop over queries and keys (RoFormer, equation 34)."""
    theta = BASE ** (-np.arange(0, SIZE, 2) / SIZE)
    out = np.zeros_like(v)
    for m in range(len(q)):
        seen = [n for n in range(m + 1) if not np.isnan(apart[m, n])]
        pairs = lambda x: x[: SIZE // 2] + 1j * x[SIZE // 2 :]
        turned = [(pairs(q[m]) * np.conj(pairs(k[n])) * np.exp(1j * apart[m, n] * theta)).real.sum() for n in seen]
        scores = np.array(turned) / math.sqrt(SIZE)
        weights = np.exp(scores - scores.max())
        out[m] = weights / weights.sum() @ v[seen]
    return out
