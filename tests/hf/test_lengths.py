"""Factor, trained length and maximum: all eight combinations of given and missing, and the contradictions."""

import pytest

from lengthen.core import UsageError
from lengthen.hf.lengths import resolve_lengths

DECIDED = {
    (4.0, 2048, 8192): (4.0, 2048, 8192, r"4 times the 2048 trained tokens are the maximum of 8192\."),
    (4.0, 2048, None): (4.0, 2048, 8192, r"4 times the 2048 trained tokens reach 8192\."),
    (4.0, None, 2048): (4.0, 2048, 8192, r"the maximum of 2048 tokens is taken for it.*the trained one is 512: say so"),
    (None, 4096, 131_072): (32.0, 4096, 131_072, r"the maximum over the trained length: 131072 / 4096 = 32\."),
    (None, 2048, None): (1.0, 2048, 2048, "nothing was extended"),
    (None, None, 2048): (1.0, 2048, 2048, "nothing was extended"),
    (4.0, 2048, 2048): (4.0, 2048, 8192, "the maximum was left at the trained length"),
    (8.0, 8192, 131_072): (8.0, 8192, 131_072, "65536, and the maximum is 131072: they contradict each other.*not 16"),
    (40.0, 4096, 163_840): (40.0, 4096, 163_840, "are the maximum"),
    (1.0, 7, 7): (1.0, 7, 7, "are the maximum"),
    (4.7, 2187, None): (4.7, 2187, 10_279, "4.7 times the 2187 trained tokens reach 10279"),
}
"""(factor, original, maximum) -> the same three, decided, and part of the sentence."""


@pytest.mark.parametrize("given", DECIDED)
def test_decided_with_a_sentence(given):
    factor, original, maximum, sentence = DECIDED[given]
    found = resolve_lengths(*given)
    assert (found.factor, found.original, found.maximum) == (factor, original, maximum)
    with pytest.raises(AssertionError, match=sentence):
        raise AssertionError(str(found))


REFUSED = {
    (None, None, None): r"Neither a factor nor a length is given\. Give the trained length",
    (4.0, None, None): r"A factor of 4 alone names no length\. Give the trained length",
    (0.25, 2048, 8192): r"at least 1, got 0\.25\. 4 makes",
    (0.25, None, None): r"at least 1, got 0\.25",
    (4.0, 8192, 2048): "trained length of 8192 tokens is above the maximum of 2048",
    (None, 8192, 2048): "trained length of 8192 tokens is above the maximum of 2048",
    (None, 0, None): "'original_max_position_embeddings' .* at least 1, got 0",
    (None, None, 2048.5): r"'max_position_embeddings' .* whole number of tokens, at least 1, got 2048\.5",
    (float("nan"), 2048, None): "positive, finite number of trained lengths, got nan",
}


@pytest.mark.parametrize("given", REFUSED)
def test_refused_with_both_numbers(given):
    with pytest.raises(UsageError, match=REFUSED[given]):
        resolve_lengths(*given)
