"""The cache that forgets: what is kept, what it costs, and that nothing of what can still be seen is lost."""

import numpy as np
import pytest
import torch
from quadratic import Facts, quadratic_logits
from tiny import FAMILIES, apart, ids, llama, logits

from lengthen.core import Refusal, UsageError
from lengthen.hf import extend

EXACT = 1e-4
THETA = 10_000.0 ** (-np.arange(0, 16, 2) / 16)
RULES = {
    "streaming_llm:sinks=3,window=8": (10, lambda d, i, j: d if d < 8 else min(i, 10) - j if j < 3 else np.nan),
    "lm_infinite:sinks=3,window=8,limit=8": (10, lambda d, i, j: d if d < 8 else 8 if j < 3 else np.nan),
    "lm_infinite:sinks=3,window=8,limit=12": (
        10,
        lambda d, i, j: d if d < 8 or (j < 3 and d < 12) else 12 if j < 3 else np.nan,
    ),
    "window:tokens=9": (8, lambda d, i, j: d if d < 9 else np.nan),
    "sinks:tokens=2,window=5": (6, lambda d, i, j: d if d < 5 or j < 2 else np.nan),
    "bca:block=4": (7, lambda d, i, j: d if i // 4 - j // 4 <= 1 else np.nan),
    "streaming_llm:sinks=1,window=1": (1, lambda d, i, j: d if d < 1 else min(i, 1) - j if j < 1 else np.nan),
}
"""Tokens held after a forward, and the distance of key j from query i."""


@torch.no_grad()
def read(model, x, cache, chunks, mask=None):
    found, done = [], 0
    while done < x.shape[1]:
        stop = min(done + chunks[len(found) % len(chunks)], x.shape[1])
        given = {} if mask is None else {"attention_mask": mask[:, :stop]}
        found.append(model(x[:, done:stop], cache=cache, use_cache=True, **given).logits)
        done = stop
    return torch.cat(found, dim=1).double()


@pytest.mark.parametrize("spec", RULES)
@pytest.mark.parametrize("route", [None, "raw"])
def test_any_chunks_give_the_papers_logits_from_a_cache_that_stays_small(spec, route):
    model, x, (held, rule) = llama(), ids(61, rows=1), RULES[spec]
    far = np.array([[rule(i - j, i, j) if j <= i else np.nan for j in range(61)] for i in range(61)], dtype=float)
    expected = quadratic_logits(model, Facts(), x, far, THETA)
    extension = extend(model, spec, route=route)
    for chunks in ((1,), (5,), (7,), (30, 1, 2), (61,)):
        cache = extension.cache()
        assert apart(read(model, x, cache, chunks)[0], expected) < EXACT
        assert {layer.keys.shape for layer in cache.layers} == {(1, 2, held, 16)}
        assert {layer.values.untyped_storage().nbytes() for layer in cache.layers} == {2 * held * 16 * 4}
        assert cache.get_seq_length() == 61


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt_neox"])
@pytest.mark.parametrize("spec", list(RULES)[:3])
def test_padding_takes_no_room_of_the_first_tokens(name, spec):
    model, x = FAMILIES[name](), ids(50)
    mask = torch.ones_like(x)
    mask[1, :13] = 0
    extension = extend(model, spec)
    alone = [logits(model, x[:1])[0], logits(model, x[1:, 13:])[0]]
    for chunks in ((1,), (20, 1, 7), (5,)):
        found = read(model, x, extension.cache(), chunks, mask)
        assert apart(found[0], alone[0]) < EXACT
        assert apart(found[1, 13:], alone[1]) < EXACT


@pytest.mark.parametrize("beams", [1, 3])
def test_generate_says_the_same_and_the_memory_does_not_grow(beams):
    model, x = llama(), ids(40)
    mask = torch.ones_like(x)
    mask[1, :13], x[1, :13] = 0, 0
    extension = extend(model, "streaming_llm:sinks=2,window=9")
    given = {"attention_mask": mask, "do_sample": False, "num_beams": beams}
    cache = extension.cache()
    found = model.generate(x, cache=cache, max_new_tokens=30, **given)
    assert torch.equal(found, model.generate(x, max_new_tokens=30, use_cache=False, **given))
    assert cache.get_seq_length() == 69
    assert cache.layers[0].keys.shape[2] == 10


def test_a_cache_is_empty_again_after_reset():
    model, x = llama(), ids(30)
    cache = extend(model, "window:tokens=9").cache()
    first = read(model, x, cache, (7,))
    cache.reset()
    assert cache.get_seq_length() == 0
    assert torch.equal(read(model, x, cache, (7,)), first)


def test_what_sees_the_whole_text_has_no_small_cache():
    model = llama()
    for spec in ("self_extend:window=7,group=3", "yarn:factor=4", "rerope"):
        with extend(model, spec) as extension, pytest.raises(Refusal, match="2 of 2 layers see the whole text"):
            extension.cache()
    with (
        extend(FAMILIES["smollm3"](), "streaming_llm:sinks=3,window=8") as extension,
        pytest.raises(Refusal, match="2 of 4 layers see the whole text"),
    ):
        extension.cache()


def test_it_works_for_its_extension_only():
    model, x = llama(), ids(30)
    extension = extend(model, "streaming_llm:sinks=3,window=8")
    cache = extension.cache()
    read(model, x, cache, (7,))
    with pytest.raises(Refusal, match="keeps 11 tokens and has dropped the rest"):
        cache.crop(-1)
    with pytest.raises(Refusal, match="Read packed documents without a cache"):
        model(x, doc=torch.zeros_like(x), cache=extension.cache())
    other = extend(extension.restore(), "streaming_llm:sinks=3,window=9")
    with pytest.raises(Refusal, match="This cache holds 30 tokens that were read before the model was extended as it is now"):
        read(model, x, cache, (1,))
    other.restore()
    with pytest.raises(UsageError, match="works in a model under the extension that made it"):
        read(model, x, cache, (1,))
    with pytest.raises(UsageError, match="restored; the model makes caches of its own"):
        other.cache()
