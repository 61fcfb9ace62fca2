"""A check of your own: the scores of a scheme against an independent formula."""

from collections.abc import Callable

import numpy as np
import torch

from lengthen.core import Coordinates, Scheme, visible

from .check import Check, gap
from .subject import Subject, stage

Formula = Callable[[Scheme, np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(scheme, q [H, Q, D], k [H, K, D], query positions [Q], key positions [K]) -> nats [H, Q, K], all in float64."""


def oracle(formula: Formula, tolerance: float = 1e-9, tokens: int = 48) -> Check:
    """A check that the visible scores of `tokens` consecutive tokens are those of `formula`.

    Write the formula from the paper, in numpy, without calling the scheme; read learned parameters from it where needed.
    """

    @torch.no_grad()
    def measure(subject: Subject) -> float:
        scheme = subject.scheme()
        scene = stage(subject, scheme, Coordinates.plain(tokens), tokens)
        shown = visible(scene.layout, scheme.pattern)[0]
        keys = scene.k.repeat_interleave(scene.q.shape[1] // scene.k.shape[1], dim=1)
        places = scene.layout.q.pos[0].numpy()
        expected = formula(scheme, scene.q[0].numpy(), keys[0].numpy(), places, places)
        found = scene.plan(scheme).logits()[0]
        return gap(found.masked_fill(~shown, 0.0), torch.from_numpy(expected).masked_fill(~shown, 0.0))

    return Check("oracle", "The visible scores are those of an independent formula.", tolerance, measure)
