"""extend() on many families: logits of float64 attention at the papers' distances, in layers that turn and in those that do not."""

import numpy as np
import pytest
import torch
from papers import L, dual_chunked, self_extended
from quadratic import Facts, quadratic_logits
from tiny import FAMILIES, apart, ids, in_chunks, logits

from lengthen.hf import extend

EXACT = 1e-4
FACTS = {
    "llama": Facts(),
    "mistral": Facts(windows=(16, 16)),
    "qwen2": Facts(windows=(None, 16)),
    "qwen3": Facts(32),
    "phi3": Facts(),
    "gemma": Facts(),
    "olmo2": Facts(),
    "smollm3": Facts(turns=(True, False, True, False), windows=(None,) * 4),
    "gpt_neox": Facts(4),
    "qwen2_moe": Facts(),
    "cohere": Facts(neighbours=True),
    "stablelm": Facts(4),
}
THETA = {"smollm3": 2_000_000.0, "cohere": 500_000.0}
"""Bases of the families' configurations, where they are not 10 000."""


def theta(name: str) -> np.ndarray:
    size = FACTS[name].size
    return THETA.get(name, 10_000.0) ** (-np.arange(0, size, 2) / size)


def yarn(name: str) -> tuple[np.ndarray, float]:
    """Factor 4: the released code's ramp over the index of the pairs that turn."""
    size, base = FACTS[name].size, THETA.get(name, 10_000.0)
    pair = lambda turns: size * np.log(L / (2 * np.pi * turns)) / (2 * np.log(base))
    low, high = max(np.floor(pair(32)), 0), min(np.ceil(pair(1)), size - 1)
    share = np.clip((np.arange(size // 2) - low) / max(high - low, 0.001), 0, 1)
    return theta(name) * (share / 4 + 1 - share), 0.1 * np.log(4) + 1


def dynamic(name: str) -> tuple[np.ndarray, float]:
    """For 80 tokens: 2.5 trained lengths."""
    size = FACTS[name].size
    base = THETA.get(name, 10_000.0) * 2.5 ** (size / (size - 2))
    return base ** (-np.arange(0, size, 2) / size), 1.0


SPECS = {
    "yarn:factor=4": (yarn, lambda d, i, j: d),
    "dynamic_ntk": (dynamic, lambda d, i, j: d),
    "self_extend:window=7,group=3": (lambda name: (theta(name), 1.0), self_extended),
    "dual_chunk:chunk=9,local=4": (lambda name: (theta(name), 1.0), dual_chunked),
    "streaming_llm:sinks=3,window=8": (
        lambda name: (theta(name), 1.0),
        lambda d, i, j: d if d < 8 else min(i, 10) - j if j < 3 else np.nan,
    ),
}


@pytest.mark.parametrize("name", FACTS)
@pytest.mark.parametrize("spec", SPECS)
def test_logits_are_those_of_the_paper_and_of_any_chunks(name, spec):
    model, x = FAMILIES[name](), ids(60, rows=1)
    spectrum, rule = SPECS[spec]
    far = np.array([[rule(i - j, i, j) if j <= i else np.nan for j in range(60)] for i in range(60)], dtype=float)
    expected = quadratic_logits(model, FACTS[name], x, far, *spectrum(name))
    extend(model, spec, tokens=80)
    found = logits(model, x)
    assert apart(found[0], expected) < EXACT
    assert apart(in_chunks(model, x, (5, 1, 7)), found) < EXACT
    padded = torch.cat((torch.zeros(1, 13, dtype=torch.long), x), dim=1)
    mask = (torch.arange(73) >= 13).long()[None]
    assert apart(logits(model, padded, attention_mask=mask)[0, 13:], expected) < EXACT


def test_a_window_of_nothing_that_no_layer_uses_is_no_obstacle():
    model = FAMILIES["qwen2_moe"]()
    assert model.config.sliding_window == 0
    assert extend(model, "self_extend").turned == 2
