"""The registry: discovery, specs and their options, and what it says of those it cannot read."""

from importlib.resources import files

import pytest

from lengthen.core import Scheme, Shape, UnknownNameError, UsageError, build, build_layers, get, method, methods, parse
from lengthen.core.registry import canonical


def options(spec):
    return [(m.name, given) for m, given in parse(spec)]


def test_every_file_of_the_package_is_discovered():
    """Each registers at least one method in its own module; nothing else lists them."""
    names = {f.name.removesuffix(".py") for f in files("lengthen.methods").iterdir() if f.name.endswith(".py")} - {"__init__"}
    assert names <= {m.factory.__module__.rsplit(".", 1)[1] for m in methods().values()}
    assert list(methods()) == sorted(methods())


def test_every_option_of_every_method_is_described():
    for m in methods().values():
        assert m.summary.endswith("."), m.name
        for option in m.options:
            assert option.doc, f"{m.name} says nothing about its option {option.name}"


@pytest.mark.parametrize(
    ("spec", "read"),
    [
        ("rope", [("rope", {})]),
        (" RoPE ", [("rope", {})]),
        ("P-RoPE", [("p_rope", {})]),
        ("rope:base=1e6", [("rope", {"base": 1e6})]),
        ("rope:base=1e+6+alibi", [("rope", {"base": 1e6}), ("alibi", {})]),
        ("rope:base=5,interleaved=false", [("rope", {"base": 5, "interleaved": False})]),
        ("learned:length=None", [("learned", {"length": None})]),
        ("sinusoidal: layout = tensor2tensor ,", [("sinusoidal", {"layout": "tensor2tensor"})]),
        ("randomised:limit=-5", [("randomised", {"limit": -5})]),
        ("bipe:separators=(10, 46),attention=alibi", [("bipe", {"separators": (10, 46), "attention": "alibi"})]),
        ("bipe:separators=[1,2]+window:tokens=3", [("bipe", {"separators": [1, 2]}), ("window", {"tokens": 3})]),
    ],
)
def test_specs(spec, read):
    assert options(spec) == read


def test_options_reach_the_scheme():
    scheme = build("rope:base=100.0,fraction=0.5+window:tokens=3", Shape(head_size=8))
    assert scheme.rotation.inv_freq.tolist() == pytest.approx([1.0, 0.1])
    assert scheme.pattern.tokens == 3


@pytest.mark.parametrize(
    ("spec", "error", "said"),
    [
        ("rpoe", UnknownNameError, r"no method named 'rpoe'.*'rope'"),
        ("qqqq", UnknownNameError, r"no method named 'qqqq'. Known: .*alibi.*rope"),
        ("rope:bas=3", UnknownNameError, r"option of rope named 'bas'.*'base'"),
        ("nope:x=3", UnknownNameError, r"option of nope named 'x'"),
        ("rope:base", UsageError, r"option 'base'.*has no value"),
        ("rope+", UsageError, r"empty part"),
        ("", UsageError, r"empty part"),
        ("rope+rope:base=5", UsageError, r"one rotation stage, got 2: Rotary and Rotary"),
        ("sinusoidal+learned", UsageError, r"one embedding stage, got 2: Sinusoidal and Learned"),
    ],
)
def test_what_cannot_be_read_is_said(spec, error, said):
    with pytest.raises(error, match=said):
        build(spec)


def test_a_factory_receives_the_fields_that_it_names():
    @method("test_registry_probe", family="test")
    def probe(width: int, train_length: int, *, gain: float = 1.0) -> Scheme:
        """A probe.

        gain: of nothing,
          on two lines.
        """
        seen.append((width, train_length, gain))
        return Scheme()

    seen: list[tuple] = []
    try:
        build("test_registry_probe:gain=2.5", Shape(width=24, heads=3, groups=1, train_length=7))
        assert seen == [(24, 7, 2.5)]
        found = get("test_registry_probe")
        assert [(o.name, o.default, o.doc) for o in found.options] == [("gain", 1.0, "of nothing, on two lines.")]
        with pytest.raises(UsageError, match="Two methods are named 'test_registry_probe'"):
            method("test_registry_probe", family="test")(lambda: Scheme())
        namesake = lambda: Scheme()
        namesake.__module__, namesake.__qualname__ = "another.package", probe.__qualname__
        with pytest.raises(UsageError, match="Two methods are named 'test_registry_probe'"):
            method("test_registry_probe", family="test")(namesake)
    finally:
        from lengthen.core import registry

        del registry._METHODS["test_registry_probe"]


def test_layers_take_specs_in_turn_and_share_instances():
    made = build_layers(["rope", "alibi"], 5, Shape())
    assert [s.rotation is not None for s in made] == [True, False, True, False, True]
    assert made[0] is made[2] is made[4] and made[1] is made[3] and made[0] is not made[1]


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"heads": 6, "groups": 4}, "6 query heads cannot share 4.*divisor of 6"),
        ({"heads": 0}, "'heads'.*got 0"),
        ({"head_size": 2.0}, "'head_size'.*got 2.0"),
        ({"train_length": True}, "'train_length'.*got True"),
    ],
)
def test_shapes_that_no_model_has_are_refused(sizes, said):
    with pytest.raises(UsageError, match=said):
        Shape(**sizes)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("rope:interleaved=maybe", "'interleaved' of rope must be True or False, got 'maybe'"),
        ("t5:bidirectional=3", "'bidirectional' of t5 must be True or False, got 3"),
        ("rope:fraction=nan", "'fraction' of rope must be a finite number, such as 1.0, got 'nan'"),
        ("rope:base=1e400", "'base' of rope must be a finite number, such as 10000.0, got inf"),
        ("xpos:scale_base=1" + "0" * 400, "'scale_base' of xpos must be a finite number"),
        ("fox:bias=abc", "'bias' of fox must be a finite number"),
        ("p_rope:p=None", "'p' of p_rope must be a finite number.*got None"),
        ("rope:base=1,base=2", "option 'base' is given twice in 'rope:base=1,base=2'"),
        ("alibi+rope+alibi", "holds alibi twice, with the same options"),
    ],
)
def test_options_of_another_kind_and_repetitions_are_refused(spec, said):
    with pytest.raises(UsageError, match=said):
        build(spec)


def test_one_method_with_different_options_may_be_composed():
    assert build("window:tokens=4+window:tokens=8").pattern.causal


def test_layers_without_a_spec_are_refused():
    with pytest.raises(UsageError, match="No method was given for 2 layers"):
        build_layers([], 2, Shape())


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("ALiBi", "alibi"),
        ("p-rope:p=0.5", "p_rope:p=0.5"),
        ("RoPE:base=1e+6+Window:tokens=4", "rope:base=1e+6+window:tokens=4"),
    ],
)
def test_spellings_of_a_name_are_one(spec, name):
    assert canonical(spec) == name
