"""What the papers say of each method, in numpy float64: nothing of lengthen is imported here.

d = i - j is the distance of key j from query i, L = 32 the trained length, R = 16 the channels that turn, s = 4 the factor.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

L, R, HEADS, S = 32, 16, 4, 4.0
PAIR = np.arange(R // 2)
THETA = 10_000.0 ** (-2 * PAIR / R)
TURNS = L * THETA / (2 * np.pi)
"""Rotations of each pair within the trained length."""


@dataclass(frozen=True)
class Paper:
    """One method: distances (nan: not seen), frequencies, and what multiplies or is added to logits."""

    distance: Callable[[int, int, int], float] = lambda d, i, j: d
    inv_freq: np.ndarray = None
    scale: float = 1.0
    """Multiplies queries and keys alike."""
    heat: Callable[[int], float] | None = None
    """Multiplies q . k of query i."""
    bias: Callable[[np.ndarray, object], np.ndarray] | None = None
    """[T, T] distances and the scheme, whose trained numbers it may read -> nats [H, T, T]."""

    def apart(self, tokens: int) -> np.ndarray:
        seen = lambda i, j: self.distance(i - j, i, j) if j <= i else np.nan
        return np.array([[seen(i, j) for j in range(tokens)] for i in range(tokens)], dtype=float)


def rescaled(inv_freq: np.ndarray, scale: float = 1.0) -> Paper:
    return Paper(inv_freq=inv_freq, scale=scale)


def unturned(**what) -> Paper:
    return Paper(inv_freq=np.zeros(R // 2), **what)


def remapped(distance: Callable, **what) -> Paper:
    return Paper(distance, THETA, **what)


def geometric(base: float) -> np.ndarray:
    return base ** (-2 * PAIR / R)


def deployed_yarn(factor: float) -> np.ndarray:
    """The released code: a ramp over the index between the pairs that turn 32 times and once, rounded outwards."""
    pair = lambda turns: R * np.log(L / (2 * np.pi * turns)) / (2 * np.log(10_000.0))
    low, high = max(np.floor(pair(32)), 0), min(np.ceil(pair(1)), R - 1)
    share = np.clip((PAIR - low) / max(high - low, 0.001), 0, 1)
    return THETA / factor * share + THETA * (1 - share)


def by_parts(factor: float, slow: float, fast: float) -> np.ndarray:
    kept = np.clip((TURNS - slow) / (fast - slow), 0, 1)
    return (1 - kept) * THETA / factor + kept * THETA


def self_extended(d, i, j):
    return d if d < 7 else i // 3 - j // 3 + 7 - 7 // 3


def dual_chunked(d, i, j):
    query = {0: i % 9, 1: min(9 + i % 9, 12)}.get(i // 9 - j // 9, 12)
    return query - j % 9


def alibi(apart: np.ndarray, scheme) -> np.ndarray:
    return np.stack([-(2.0 ** (-8 * h / HEADS)) * apart for h in range(1, HEADS + 1)])


def sandwich(apart: np.ndarray, scheme) -> np.ndarray:
    waves = sum(np.cos(apart * 10_000.0 ** (-2 * i / 128)) for i in range(1, 65)) - 64
    return np.stack([waves / (8 * h / HEADS) for h in range(1, HEADS + 1)])


def numbers(x: torch.Tensor) -> np.ndarray:
    return x.detach().double().numpy()


def kerple(apart: np.ndarray, scheme) -> np.ndarray:
    p, a = (numbers(x)[:, None, None] for x in (scheme.terms[0].p(), scheme.terms[0].a()))
    return -p * np.log1p(a * apart)


def tisa(apart: np.ndarray, scheme) -> np.ndarray:
    a, b, c = (numbers(x)[:, :, None, None] for x in (scheme.terms[0].a, scheme.terms[0].b, scheme.terms[0].c))
    return (a * np.exp(-np.abs(b) * (-apart - c) ** 2)).sum(1)


def t5(apart: np.ndarray, scheme) -> np.ndarray:
    """32 buckets, 16 of single distances, then logarithmic up to 128; the table times sqrt(head size)."""
    large = np.minimum(16 + np.floor(np.log(np.maximum(apart, 16) / 16) / np.log(128 / 16) * 16), 31)
    bucket = np.where(apart < 16, apart, large).astype(int)
    return numbers(scheme.terms[0].table)[:, bucket] * 4.0


def drawn(d, i, j):
    """A sorted draw of 256 positions out of [0, 2048) from seed 0."""
    places = np.sort(np.random.default_rng(0).choice(2048, 256, replace=False))
    return places[i] - places[j]


LISTS = (1.0, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
YARN = 0.1 * np.log(S) + 1
MIXED = np.exp(-np.log(S) / (R / 2) ** 0.625 * (PAIR + 1) ** 0.625)
ONCE = 2 * np.pi / L

PAPERS: dict[str, Paper] = {
    "rope": rescaled(THETA),
    "nope": unturned(),
    "p_rope:p=0.75": rescaled(np.where(PAIR < 6, THETA, 0)),
    "pi:factor=4": rescaled(THETA / S),
    "ntk:factor=4": rescaled(geometric(10_000.0 * S ** (R / (R - 2)))),
    "ntk_mixed:factor=4": rescaled(THETA * MIXED),
    "abf:adjusted=5e5": rescaled(geometric(5e5)),
    "dynamic_ntk:factor=4": rescaled(geometric(10_000.0 * S ** (R / (R - 2)))),
    "dynamic_ntk:factor=4,growth=2.0": rescaled(geometric(10_000.0 * (2 * S - 1) ** (R / (R - 2)))),
    "ntk_by_parts:factor=4": rescaled(by_parts(S, 1.0, 32.0)),
    "yarn:factor=4": rescaled(deployed_yarn(S), YARN),
    "yarn:factor=4,ramp=paper": rescaled(by_parts(S, 1.0, 32.0), YARN),
    f"longrope:factor=4,long_factor={LISTS}": rescaled(THETA / np.array(LISTS), np.sqrt(1 + np.log(S) / np.log(L))),
    "llama3:factor=4.0": rescaled(by_parts(S, 1.0, 4.0)),
    "giraffe_power:power=0.5": rescaled(THETA * (1 - PAIR / (R / 2)) ** 0.5),
    "giraffe_truncated": rescaled(np.where(THETA >= ONCE, THETA, np.where(THETA >= ONCE / 8, ONCE / 16, 0))),
    "resonance:factor=4": rescaled(2 * np.pi / np.round(2 * np.pi / deployed_yarn(S)), YARN),
    "window:tokens=9": remapped(lambda d, i, j: d if d < 9 else np.nan),
    "sinks:tokens=2,window=9": remapped(lambda d, i, j: d if d < 9 or j < 2 else np.nan),
    "bca:block=7": remapped(lambda d, i, j: d if i // 7 - j // 7 <= 1 else np.nan),
    "chunked:tokens=7": remapped(lambda d, i, j: d if i // 7 == j // 7 else np.nan),
    "dilated:tokens=5,step=3": remapped(lambda d, i, j: d if d < 15 and d % 3 == 0 else np.nan),
    "rerope:window=8": remapped(lambda d, i, j: min(d, 8)),
    "rerope:window=8+log_n:clip=true": remapped(lambda d, i, j: min(d, 8), heat=lambda i: max(1.0, np.log(i + 1) / np.log(L))),
    "leaky_rerope:window=8,factor=3": remapped(lambda d, i, j: d if d < 8 else 8 + (d - 8) / 3),
    "self_extend:window=7,group=3": remapped(self_extended),
    "dual_chunk:chunk=9,local=4": remapped(dual_chunked),
    "string:shift=10,local=3": remapped(lambda d, i, j: d if d < 10 else d - 7),
    "string:shift=10,local=3,factor=1.0693": remapped(lambda d, i, j: d if d < 10 else d - 7, scale=1.0693),
    "lm_infinite:sinks=3,window=8,limit=12": remapped(
        lambda d, i, j: d if d < 8 or (j < 3 and d < 12) else 12 if j < 3 else np.nan
    ),
    "streaming_llm:sinks=3,window=8": remapped(lambda d, i, j: d if d < 8 else min(i, 10) - j if j < 3 else np.nan),
    "log_n": remapped(lambda d, i, j: d, heat=lambda i: np.log(i + 1) / np.log(L)),
    "ssmax:init=0.43": remapped(lambda d, i, j: d, heat=lambda i: 0.43 * np.log(i + 1)),
    "pose": remapped(lambda d, i, j: d),
    "randomised:limit=2048,length=256": remapped(drawn),
    "alibi": unturned(bias=alibi),
    "sandwich": unturned(bias=sandwich),
    "kerple": unturned(bias=kerple),
    "tisa": unturned(bias=tisa),
    "t5": unturned(bias=t5),
    "yarn:factor=4+self_extend:window=7,group=3": Paper(self_extended, deployed_yarn(S), YARN),
}
"""By spec. Frequencies are those of a checkpoint with R = 16 and base 10 000."""
CONTENT = {"fire", "shaw", "transformer_xl"}
"""Terms with networks or vectors of their own, untrained in a checkpoint: their formulas are tests/methods'; here, their caches."""
