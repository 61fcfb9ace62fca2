"""The suite as authors and the command line use it."""

import json
import math

import pytest
import torch

from lengthen.conformance import CHECKS, CheckResult, NotApplicable, cases, check, check_method, check_scheme, oracle, subject
from lengthen.conformance.__main__ import main
from lengthen.core import Everywhere, LengthError, PositionMap, Scheme, UnknownNameError, methods
from lengthen.methods.alibi import ALiBi


class Crashes(ALiBi):
    def at(self, distance):
        raise RuntimeError("no table for this head")


class Ends(PositionMap):
    """A table of 64 positions."""

    def forward(self, idx, tokens=None):
        if idx.max() >= 64:
            raise LengthError("64 positions, asked for more")
        return idx


def statuses(results: list[CheckResult]) -> dict[str, str]:
    return {r.name: r.status for r in results}


def test_results_say_what_was_measured():
    (result,) = check_method("alibi", checks=["prefix"])
    assert (result.name, result.status, result.tolerance) == ("prefix", "pass", CHECKS["prefix"].tolerance)
    assert 0 <= result.error <= result.tolerance


def test_a_crash_is_a_failed_check():
    (result,) = check_scheme(lambda shape: Scheme(terms=[Crashes(shape.heads)]), checks=["prefix"])
    assert (result.status, result.error, result.reason) == ("fail", math.inf, "RuntimeError: no table for this head")
    with pytest.raises(AssertionError, match="no table for this head"):
        result.confirm()


def test_what_does_not_apply_says_why():
    names = ["cached_chunks", "prefix", "gradients", "shift"]
    results = check_scheme(lambda shape: Scheme(pattern=Everywhere()), checks=names)
    assert statuses(results) == {"cached_chunks": "n/a", "prefix": "n/a", "gradients": "n/a", "shift": "pass"}
    assert "both directions" in results[0].reason
    assert results[0].error is None


def test_a_table_may_end_where_it_is_declared():
    make = lambda shape: Scheme(positions=Ends(), terms=[ALiBi(shape.heads)])
    (allowed,) = check_scheme(make, limited=True, checks=["far"])
    (undeclared,) = check_scheme(make, checks=["far"])
    assert (allowed.status, undeclared.status) == ("pass", "fail")
    assert "64 positions" in allowed.reason


def test_options_go_to_the_last_method_and_modifiers_onto_rope():
    assert subject("window", {"tokens": 7}).name == "rope+window:tokens=7"
    made = subject("alibi+window", {"tokens": 7})
    scheme = made.fresh()
    assert (scheme.rotation, len(scheme.terms)) == (None, 1)
    assert scheme.pattern(torch.tensor(10), torch.arange(12)).nonzero().flatten().tolist() == [*range(4, 11)]


def test_every_variant_is_a_case():
    assert len(cases()) == sum(1 + len(m.variants) for m in methods().values())


def test_parameters_are_moved_from_their_start():
    table = subject("t5").scheme().terms[0]
    assert all(bool((p != 0).all()) for p in table.parameters())


def test_unknown_names_list_their_neighbours():
    with pytest.raises(UnknownNameError, match="'prefix'"):
        check_method("alibi", checks=["prefx"])
    with pytest.raises(UnknownNameError, match="'alibi'"):
        check_method("alibbi")


def test_an_authors_own_check_runs_beside_the_others():
    @check("heads", 0.0)
    def heads(subject):
        """There is a slope per head."""
        if not subject.fresh().terms:
            raise NotApplicable("no terms")
        return abs(len(subject.fresh().terms[0].slopes) - 4)

    assert heads.asserts == "There is a slope per head."
    assert statuses(check_method("alibi", checks=[heads, "shift"])) == {"heads": "pass", "shift": "pass"}
    assert check_method("nope", checks=[heads])[0].reason == "no terms"


def test_the_oracle_measures_the_distance_to_the_formula():
    product = lambda scheme, q, k, i, j: q @ k.transpose(0, 2, 1) / 4
    (right,) = check_method("nope", checks=[oracle(product)])
    (wrong,) = check_method("nope", checks=[oracle(lambda *given: product(*given) + 0.25)])
    assert right.status == "pass"
    assert wrong.error == pytest.approx(0.25)


def test_the_command_prints_a_table(capsys):
    assert main(["nope", "--checks", "prefix", "gradients"]) == 0
    out = capsys.readouterr().out
    assert "nope" in out
    assert "1 passed, 0 failed, 1 do not apply" in out


def test_the_command_prints_json(capsys):
    assert main(["alibi+window:tokens=5", "--checks", "prefix", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["method"], row["check"], row["status"]) == ("alibi+window:tokens=5", "prefix", "pass")


def test_the_command_fails_where_a_method_does(capsys, monkeypatch):
    monkeypatch.setattr(ALiBi, "at", Crashes.at)
    assert main(["alibi", "--checks", "prefix"]) == 1
    assert "no table for this head" in capsys.readouterr().out
    assert main(["alibi", "--checks", "prefix", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["error"] is None


def test_the_command_refuses_unknown_methods(capsys):
    assert main(["alibbi"]) == 2
    assert "'alibi'" in capsys.readouterr().err
