"""What is tried, and what a person may write."""

import pytest
from wordy import TRAINED, llama

from lengthen.advise.amounts import seconds_of, spoken, tokens_of
from lengthen.advise.candidates import AS_IS, candidates, named
from lengthen.core import Geometric, UnknownNameError, UsageError, build, parse
from lengthen.core.registry import Shape
from lengthen.hf import extend


def options(found, name):
    return [o for c in found if c.spec != AS_IS for m, o in parse(c.spec) if m.name == name]


@pytest.mark.parametrize("factor", [1.25, 2, 4, 8, 16])
def test_every_candidate_extends_a_llama(factor):
    found, model = candidates(TRAINED, int(factor * TRAINED), 10_000.0), llama()
    assert len({c.spec for c in found}) == len(found) >= 20 and found[0].spec == AS_IS
    for c in found[1:]:
        with extend(model, c.spec, tokens=int(factor * TRAINED)) as e:
            assert e.tokens == factor * TRAINED


@pytest.mark.parametrize(("trained", "target"), [(8192, 16384), (8192, 65536), (2048, 3000), (64, 256)])
def test_remapped_distances_stay_inside_the_trained_length(trained, target):
    """The farthest token's position, by each method's own formula."""
    found = candidates(trained, target, 1e4)
    for o in options(found, "self_extend"):
        reach = (trained - o["window"]) * o["group"] + o["window"]
        assert target <= reach * 2 / 3 + 1
    for o in options(found, "leaky_rerope"):
        window = trained // 4
        assert window + (target - 1 - window) / o["factor"] < trained
    for o in options(found, "string"):
        assert target - 1 - o["shift"] + o["local"] <= trained + o["local"] and o["shift"] <= trained


def test_string_is_left_out_where_it_cannot_reach():
    assert options(candidates(8192, 16384, 1e4), "string") and not options(candidates(8192, 32768, 1e4), "string")


def test_abf_raises_the_checkpoints_own_base():
    (given,) = options(candidates(8192, 16384, 1e5), "abf")
    scheme = build(f"abf:adjusted={given['adjusted']}", Shape(head_size=64))
    assert scheme.rotation.rule == Geometric(4e5)
    assert not options(candidates(8192, 16384, None), "abf")
    assert options(candidates(8192, 16384, None), "learned_interpolation") == [{}]


def test_tuning_is_the_most_that_a_part_needs():
    need = {c.spec: c.tuning for c in named(["pi", "yarn", "ntk", "yarn+log_n", "self_extend"])}
    assert need == {AS_IS: "no", "pi": "yes", "yarn": "helps", "ntk": "no", "yarn+log_n": "helps", "self_extend": "no"}


def test_names_are_checked_and_the_checkpoint_as_it_is_comes_first():
    assert [c.spec for c in named(["YaRN", "none", "pi", "yarn"])] == [AS_IS, "yarn", "pi"]
    with pytest.raises(UnknownNameError, match="'yarn'"):
        named(["yarm"])
    with pytest.raises(UsageError, match="Name a method"):
        named(["none"])


@pytest.mark.parametrize(
    ("text", "tokens"), [("16k", 16384), ("16384", 16384), ("2x", 16384), ("1.5x", 12288), ("0.5M", 524288)]
)
def test_lengths(text, tokens):
    assert tokens_of(text, 8192) == tokens


@pytest.mark.parametrize("text", ["", "k", "16kb", "-16k", "2.5", "0", "1e4", "nan"])
def test_other_lengths_are_refused(text):
    with pytest.raises(UsageError, match="target"):
        tokens_of(text, 8192)


@pytest.mark.parametrize(("text", "seconds"), [("20m", 1200), ("90", 90), ("90s", 90), ("1h30m", 5400), ("0.5h", 1800)])
def test_times(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "20 minutes", "0s", "-5m", "1h30", "m"])
def test_other_times_are_refused(text):
    with pytest.raises(UsageError, match="budget"):
        seconds_of(text)


def test_times_are_spoken():
    assert [spoken(s) for s in (0.4, 59.4, 160, 3900)] == ["0 s", "59 s", "2 min 40 s", "1 h 5 min"]
