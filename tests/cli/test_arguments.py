"""How the command line is read."""

import pytest

from lengthen.cli.arguments import lengths, names, spread
from lengthen.core import UsageError


def test_an_option_that_repeats_takes_several_values_at_once():
    args = ["--methods", "rope", "alibi", "--seeds", "2", "--methods", "xpos", "--json"]
    assert list(spread(args, {"--methods"})) == [
        "--methods", "rope", "--methods", "alibi", "--seeds", "2", "--methods", "xpos", "--json",
    ]  # fmt: skip


def test_commas_separate_specs_but_not_their_options():
    assert names(["rope,alibi", "xpos:scale_base=256,interleaved=True,nope"]) == [
        "rope", "alibi", "xpos:scale_base=256,interleaved=True", "nope",
    ]  # fmt: skip


def test_lengths_are_tokens_or_multiples_of_the_training_length():
    assert lengths(["1x,1.5x", "512"], 128) == (128, 192, 512)


@pytest.mark.parametrize(("text", "train", "said"), [("4y", 128, "'4y'"), ("1.3x", 128, "166.4 tokens"), ("-2", 128, "'-2'")])
def test_a_length_that_is_none_is_named(text, train, said):
    with pytest.raises(UsageError, match=said):
        lengths([text], train)
