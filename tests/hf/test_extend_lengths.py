"""Lengths of extend(): rules settled at admission, rows of their own, caches at a switch, and what is decided of factor and target."""

import numpy as np
import pytest
import torch
from reference import causal, llama_logits
from tiny import FAMILIES, TRAINED, apart, ids, in_chunks, llama, logits
from transformers import DynamicCache

from lengthen.core import Adaptive, FrequencyRule, Refusal, UsageError
from lengthen.hf import declared, extend
from lengthen.methods.dynamic_ntk import DynamicNTK
from lengthen.methods.longrope import LongRoPE

EXACT = 1e-4
THETA = 10_000.0 ** (-np.arange(0, 16, 2) / 16)
LISTS = (1.0,) * 8, tuple(float(1 + n) for n in range(8))
RULES = {"dynamic": DynamicNTK(TRAINED), "longrope": LongRoPE(*LISTS, TRAINED, mscale=1.1)}


def expected(kind: str, tokens: int) -> tuple[np.ndarray, float]:
    """Frequencies and multiplier for a text of so many tokens, by the papers."""
    if kind == "dynamic":
        return (10_000.0 * max(1, tokens / TRAINED) ** (16 / 14)) ** (-np.arange(0, 16, 2) / 16), 1.0
    return THETA / np.array(LISTS[tokens > TRAINED]), 1.1


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize("tokens", [TRAINED, TRAINED + 1, 70, 500])
@pytest.mark.parametrize("route", ["rotary", "turned", "raw"])
def test_a_rule_that_depends_on_the_length_is_settled_for_the_target(kind, tokens, route):
    model, x = llama(), ids(70, rows=1)
    extend(model, RULES[kind], tokens=tokens, route=route)
    inv_freq, scale = expected(kind, tokens)
    for read in (20, TRAINED - 1, TRAINED, TRAINED + 1, 70):
        wanted = llama_logits(model, x[0, :read], causal(read), inv_freq, scale)
        assert apart(logits(model, x[:, :read])[0], wanted) < EXACT
        assert apart(in_chunks(model, x[:, :read], (TRAINED - 1, 1, 1, 5))[0], wanted) < EXACT


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize("route", ["rotary", "turned", "raw"])
def test_rows_of_their_own_lengths_are_what_they_are_alone(kind, route):
    """A short row keeps the trained frequencies beside a long one, through chunks and padding."""
    model, x = llama(), ids(70)
    x[1, :45] = 0
    mask = (x > 0).long()
    extension = extend(model, RULES[kind], tokens=[70, 25], route=route)
    assert extension.tokens == 70
    long = llama_logits(model, x[0], causal(70), *expected(kind, 70))
    short = llama_logits(model, x[1, 45:], causal(25), *expected(kind, 25))
    for found in (logits(model, x, attention_mask=mask), in_chunks(model, x, (50, 1, 7), mask)):
        assert apart(found[0], long) < EXACT
        assert apart(found[1, 45:], short) < EXACT
    with pytest.raises(UsageError, match="extended for 2 rows of their own lengths, and this batch has 3"):
        logits(model, ids(10, rows=3))
    with pytest.raises(UsageError, match="extended for 2 rows of their own lengths, and this batch has 1"):
        logits(model, ids(10, rows=1))


def test_rows_by_a_spec_and_what_they_cannot_be():
    model, x = llama(), ids(60)
    with extend(model, "yarn", tokens=[32, 128]):
        rows = logits(model, x)
    for row, tokens in ((0, 32), (1, 128)):
        with extend(model, "yarn", tokens=tokens):
            assert apart(rows[row], logits(model, x)[row]) < EXACT
    with pytest.raises(UsageError, match="take factors from these"):
        extend(model, "yarn:factor=4", tokens=[32, 128])
    with pytest.raises(UsageError, match="can differ in how they are turned, and in nothing else"):
        extend(model, "self_extend", tokens=[32, 128])
    with pytest.raises(UsageError, match="got an empty list"):
        extend(model, "yarn", tokens=[])


def test_a_rule_that_is_not_settled_is_refused():
    with pytest.raises(UsageError, match=r"DynamicNTK depends on the length of the text. Settle it: extend\(..., tokens=N\)"):
        extend(llama(), RULES["dynamic"])
    with pytest.raises(UsageError, match="a mapping from layer types to these, got a int"):
        extend(llama(), 4)


class Halved(FrequencyRule):
    """Some rule of an author."""

    def inv_freq(self, dim):
        return 10_000.0 ** (-np.arange(0, dim, 2) / dim) / 2


class Halving(Adaptive):
    """The author's rule beyond the trained length."""

    original = TRAINED

    def at(self, tokens):
        return Halved()


@pytest.mark.parametrize("rule", [Halved(), Halving()])
def test_rules_of_an_author_take_width_and_pairing_from_the_checkpoint(rule):
    for name in ("llama", "gpt_neox", "cohere"):
        model, x = FAMILIES[name](), ids(40)
        with extend(model, "pi:factor=2" if name != "cohere" else "pi:factor=2,base=500000.0"):
            wanted = logits(model, x)
        if name != "cohere":
            with extend(model, rule, tokens=64):
                assert apart(logits(model, x), wanted) < EXACT


def test_a_cache_is_never_mixed_at_a_switch():
    model, x = llama(), ids(60)
    before = model(x[:, :40], use_cache=True).cache
    extension = extend(model, RULES["dynamic"], tokens=64)
    with pytest.raises(Refusal, match="This cache holds 40 tokens that were read before"):
        model(x[:, 40:], cache=before)
    first = model(x[:, :40], use_cache=True).cache
    model(x[:, 40:50], cache=first)
    extension = extension.at(128)
    with pytest.raises(Refusal, match="This cache holds 50 tokens that were read before"):
        model(x[:, 50:], cache=first)
    assert apart(in_chunks(model, x, (40, 10, 10)), logits(model, x)) < EXACT
    empty = DynamicCache(config=model.config)
    model(x[:, :40], cache=empty)
    model(x[:, 40:], cache=empty)
    extension.restore()


def test_at_leaves_an_extension_in_place_where_it_cannot_be():
    model, x = llama(), ids(60)
    extension = extend(model, "yarn", tokens=64)
    said = logits(model, x)
    with pytest.raises(UsageError, match="trained on 32 tokens, got a target of 16"):
        extension.at(16)
    assert torch.equal(logits(model, x), said)
    assert extension.restore() is model


DECIDED = {
    (None, None, None): (4.0, 32, 128, "Neither a factor nor a target is given; by the method's own factor, 4 times the 32"),
    (2, None, None): (2.0, 32, 64, "2 times the 32 trained tokens reach 64"),
    (None, 16, None): (4.0, 16, 64, "by the method's own factor, 4 times the 16"),
    (None, None, 96): (3.0, 32, 96, "No factor is given, so it is the maximum over the trained length: 96 / 32 = 3"),
    (2, 16, None): (2.0, 16, 32, "2 times the 16 trained tokens reach 32"),
    (4, None, 64): (4.0, 32, 64, "contradict each other. Frequencies take the factor 4 as it is given, not 2"),
    (None, 16, 64): (4.0, 16, 64, "64 / 16 = 4"),
    (4, 16, 64): (4.0, 16, 64, "4 times the 16 trained tokens are the maximum of 64"),
}
"""Factor, trained length and target, given or missing: what is decided, and the sentence."""


@pytest.mark.parametrize("given", DECIDED)
def test_factor_trained_length_and_target_are_decided_by_a_printed_rule(given):
    factor, original, tokens = given
    wanted = DECIDED[given]
    model, x = llama(), ids(60, rows=1)
    extension = extend(model, "pi", factor=factor, original=original, tokens=tokens)
    lengths = extension.lengths
    assert (lengths.factor, lengths.original, lengths.maximum) == wanted[:3]
    assert wanted[3] in str(extension)
    assert model.config.max_position_embeddings == extension.tokens == wanted[2]
    assert apart(logits(model, x)[0], llama_logits(model, x[0], causal(60), THETA / wanted[0])) < EXACT


REFUSED = {
    "a factor below one": (dict(factor=0.5), "at least 1, got 0.5"),
    "a factor in the spec below one": (dict(request="yarn:factor=0.5"), "at least 1, got 0.5"),
    "two factors": (dict(request="yarn:factor=2", factor=4), "Give it once"),
    "a target below the trained length": (dict(tokens=16), "trained on 32 tokens, got a target of 16"),
    "a target below the length that was given": (dict(tokens=64, original=128), "trained on 128 tokens, got a target of 64"),
    "a factor that does not reach": (dict(factor=2, tokens=96), "96 tokens are 3 times .* more than the factor 2"),
    "no number": (dict(tokens=2.5), "'tokens' of extend must be .* got 2.5"),
    "no trained length": (dict(original=0), "'original' of extend must be .* got 0"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_lengths_that_cannot_be_are_refused_before_anything_is_touched(what):
    given, message = REFUSED[what]
    model, x = llama(), ids(20)
    before, config = logits(model, x), model.config.to_dict()
    with pytest.raises(UsageError, match=message):
        extend(model, **{"request": "yarn", **given})
    assert torch.equal(logits(model, x), before)
    assert model.config.to_dict() == config


YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0}


def test_a_trained_length_that_looks_extended_is_said():
    model = llama(rope_parameters={**YARN, "original_max_position_embeddings": TRAINED})
    with extend(model, "self_extend") as extension:
        assert "stays meant for 32 tokens; it was trained on 32" in str(extension)
    # transformers writes the maximum into the configuration for a trained length that is missing.
    model = llama(rope_parameters=dict(YARN), max_position_embeddings=128)
    assert model.config.rope_parameters["original_max_position_embeddings"] == 128
    assert "If 128 is the length after scaling, the trained one is 32: say so." in str(declared(model.config)[None].lengths)


STRANGE = {
    "an unknown entry": ({**YARN, "beta_fats": 3.0}, "entry of rope_parameters for rope_type 'yarn' named 'beta_fats'"),
    "a trained length above the maximum": (
        {**YARN, "original_max_position_embeddings": 64},
        "64 tokens is above the maximum of 32",
    ),
    "a factor below one": ({**YARN, "factor": 0.5}, "at least 1, got 0.5"),
    "an unknown kind": ({"rope_type": "spiral", "rope_theta": 10_000.0}, "'spiral' is not known here"),
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_configuration_that_cannot_be_read_is_refused(what):
    rope, message = STRANGE[what]
    model = llama()
    model.config.rope_parameters = dict(rope)
    with pytest.raises((UsageError, Refusal), match=message):
        extend(model, "self_extend")
    assert model.config.rope_parameters == STRANGE[what][0]


def test_a_configuration_that_was_edited_after_loading_is_not_what_the_model_does():
    model = llama()
    model.config.rope_parameters = {"rope_type": "default", "rope_theta": 777.0}
    with pytest.raises(Refusal, match=r"the frequencies that its configuration declares \(default\)"):
        extend(model, "self_extend")


@pytest.mark.parametrize("kind", ["llama3", "yarn", "longrope", "linear"])
def test_a_scaled_checkpoint_takes_no_second_rotation_but_rules_and_remapping(kind):
    more = {
        "llama3": {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8},
        "yarn": {"original_max_position_embeddings": 8},
        "longrope": {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8, "original_max_position_embeddings": 8},
        "linear": {},
    }
    model = llama(rope_parameters={**YARN, "rope_type": kind, **more[kind]})
    x = ids(60, rows=1)
    with pytest.raises(
        UsageError, match=rf"scaled already \({kind}\), from .*Extend the checkpoint from before the scaling; or take"
    ):
        extend(model, "yarn:factor=8", tokens=64)
    with extend(model, Halved(), tokens=64):
        assert apart(logits(model, x)[0], llama_logits(model, x[0], causal(60), THETA / 2)) < EXACT
    extend(model, "self_extend:window=6,group=2", tokens=64).restore()
