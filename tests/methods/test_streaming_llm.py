"""StreamingLLM against the published positions inside the cache, and a simulated cache that drops tokens."""

import numpy as np
import pytest
from plane import attended, distances

from lengthen.core import UsageError, build

KEPT = {
    8: [0, 1, 2, 3, 4, 5, 6, 7],
    10: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
    11: [0, 1, 2, 3, 5, 6, 7, 8, 9, 10],
    15: [0, 1, 2, 3, 9, 10, 11, 12, 13, 14],
}
"""After so many tokens, what a cache of 4 first and 6 recent tokens keeps; positions are 0, 1, 2, ... in that order."""


@pytest.mark.parametrize("tokens", KEPT)
def test_the_published_positions(tokens):
    last = distances(build("streaming_llm:sinks=4,window=6"), tokens)[-1]
    kept = KEPT[tokens]
    assert list(np.flatnonzero(~np.isnan(last))) == kept
    np.testing.assert_array_equal(last[kept], len(kept) - 1 - np.arange(len(kept)))


@pytest.mark.parametrize(("sinks", "window"), [(1, 1), (4, 6), (3, 1), (1, 9)])
def test_a_cache_that_drops_the_oldest_token_after_the_first(sinks, window):
    found, cache = distances(build(f"streaming_llm:sinks={sinks},window={window}"), 40), []
    for i in range(40):
        cache.append(i)
        if len(cache) > sinks + window:
            del cache[sinks]
        assert list(np.flatnonzero(~np.isnan(found[i]))) == cache
        np.testing.assert_array_equal(found[i, cache], len(cache) - 1 - np.arange(len(cache)))


@pytest.mark.parametrize("backend", ["dense", "blocked"])
@pytest.mark.parametrize("tokens", [1, 6, 7, 33])
def test_attention_pair_by_pair(backend, tokens):
    scheme = build("streaming_llm:sinks=2,window=5")
    np.testing.assert_allclose(*attended(scheme, tokens, backend), rtol=1e-12, atol=1e-12)


def test_keys_may_be_cached_turned():
    assert build("rope+streaming_llm").caches_turned_keys


def test_sizes_below_one_are_refused():
    with pytest.raises(UsageError, match=r"'sinks' of streaming_llm .*got 0"):
        build("streaming_llm:sinks=0")
