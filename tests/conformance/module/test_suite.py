"""How encodings are found, recognised, selected and reported."""

import pytest
import torch

from lengthen.conformance.module import check_module, load_object
from lengthen.core import UnknownNameError, UsageError

from . import encodings as e


class Plain:
    """No torch module, and another name for everything."""

    def rotate(self, tensor, position_numbers):
        return tensor


class Pair(torch.nn.Module):
    def forward(self, a, b):
        return torch.zeros(2, a, b)


def test_a_class_a_factory_and_an_instance_are_one():
    for found in (e.Alibi, lambda: e.Alibi(), e.Alibi()):
        assert check_module(found, only=["decay"])["decay"].outcome == "pass"


def test_an_instance_says_why_it_cannot_be_built_again():
    verdict = check_module(e.Rotary(), only=["meta_device"])["meta_device"]
    assert verdict.outcome == "not applicable"
    assert "instance" in verdict.reason


def test_an_instance_stays_as_it_is():
    module = e.HalfSinusoidal()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    check_module(module)
    assert all(torch.equal(v, before[k]) and v.dtype == before[k].dtype for k, v in module.state_dict().items())


def test_the_random_state_of_the_caller_stays():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    check_module(e.Learned, only=["own_position"])
    assert torch.equal(torch.get_rng_state(), before)


def test_what_is_no_encoding_is_refused_with_what_would_be_one():
    with pytest.raises(UsageError, match=r"Pair .* forward\(a, b\).*bias\(q_positions, k_positions\)"):
        check_module(Pair)
    with pytest.raises(UsageError, match="Plain"):
        check_module(Plain)


def test_the_kind_may_be_named_where_parameters_are_not():
    assert check_module(Plain, kind="rotary", only=["repeatable"]).summary() == "lengthen check: 1 passed"
    with pytest.raises(UnknownNameError, match="'bias'"):
        check_module(Pair, kind="biass")


def test_a_class_that_wants_arguments_is_refused():
    class Needs(e.Rotary):
        def __init__(self, size):
            super().__init__()

    with pytest.raises(UsageError, match="Give a function that makes one"):
        check_module(Needs)


def test_names_of_checks_are_checked_before_anything_runs():
    for how in ({"only": ["decoy"]}, {"skip": ["decoy"]}, {"expected": {"decoy": "known"}}):
        with pytest.raises(UnknownNameError, match="'decay'"):
            check_module(e.Alibi, **how)


def test_an_expected_failure_does_not_count():
    report = check_module(e.RewardsFar, expected={"decay": "the sign is the user's"})
    assert report["decay"].outcome == "expected failure"
    assert "the sign is the user's" in report["decay"].reason
    assert not report.failures


def test_what_raises_is_an_error_with_what_it_means():
    class Breaks(e.Alibi):
        def bias(self, q_positions, k_positions):
            raise RuntimeError("no table")

    verdict = check_module(Breaks, only=["decay"])["decay"]
    assert (verdict.outcome, verdict.reason) == ("error", "RuntimeError: no table")
    with pytest.raises(AssertionError, match="no table"):
        verdict.confirm()


def test_the_report_is_plain_data():
    data = check_module(e.Growing).to_json()
    row = next(r for r in data["verdicts"] if r["check"] == "finite")
    assert (row["outcome"], row["tolerance"]) == ("fail", 0.0)
    assert data["versions"]["torch"] == torch.__version__


def test_an_object_of_a_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from neighbour import SLOPE\nclass Mine:\n    def bias(self, i, j):\n        return -SLOPE * torch.ones(i, j)\n"
    )
    (tmp_path / "neighbour.py").write_text("SLOPE = 2.0\n")
    assert load_object(f"{file}:Mine").__name__ == "Mine"
    with pytest.raises(UnknownNameError, match="'Mine'"):
        load_object(f"{file}:Mime")
    with pytest.raises(UsageError, match="There is no file"):
        load_object(f"{tmp_path / 'yours.py'}:Mine")
    with pytest.raises(UsageError, match=r"my_module\.py:MyEncoding"):
        load_object(str(file))
    (tmp_path / "broken.py").write_text("import no_such_module_anywhere\n")
    with pytest.raises(UsageError, match="no_such_module_anywhere"):
        load_object(f"{tmp_path / 'broken.py'}:Mine")
