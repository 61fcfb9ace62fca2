"""How the suite runs: what it takes, what it reports, and that it leaves a model alone."""

import json
import xml.etree.ElementTree as xml

import pytest
import torch
import transformers as tf
from torch import nn

from lengthen.conformance.model.check import Check
from lengthen.conformance.model.suite import CHECKS, check_model, guarded, model_subject
from lengthen.conformance.model.verdict import Measured, Report, Verdict
from lengthen.core.errors import UnknownNameError, UsageError
from lengthen.hf import extend
from lengthen.report.verdicts import verdict_page

from .subjects import SUBJECTS, llama

QUICK = ["prefix", "packed", "packed_ones_mask", "window_reach"]


def test_every_check_says_what_it_asserts_and_what_a_failure_means():
    assert len({c.name for c in CHECKS}) == len(CHECKS)
    assert all(c.asserts.endswith(".") and c.meaning and c.cause for c in CHECKS)


def test_a_report_counts_and_selects():
    report = check_model(llama(), only=QUICK, expected={"packed_ones_mask": "a mask of ones is a mask"})
    assert report.counts() == {"pass": 2, "expected failure": 1, "not applicable": 1}
    assert report.summary() == "lengthen check: 2 passed, 1 failed as expected, 1 n/a"
    assert not report.failures
    assert "a mask of ones is a mask" in report["packed_ones_mask"].reason
    assert [v.check for v in check_model(llama(), only=QUICK, skip=["packed"]).verdicts] == [
        "prefix",
        "packed_ones_mask",
        "window_reach",
    ]


def test_names_that_no_check_has_are_refused_with_near_ones():
    for given in ({"only": ["prefxi"]}, {"skip": ["prefxi"]}, {"expected": {"prefxi": "?"}}):
        with pytest.raises(UnknownNameError, match="prefix"):
            check_model(llama(), **given)


def test_what_is_no_model_is_refused():
    with pytest.raises(UsageError, match="str"):
        check_model("llama")
    with pytest.raises(UsageError, match="Linear"):
        check_model(nn.Linear(2, 2))
    with pytest.raises(UsageError, match="config to shrink"):
        check_model(nn.Linear(2, 2), tiny=True)


def test_formats_hold_every_verdict():
    report = check_model(llama(), only=QUICK, name="a <model>")
    suite = xml.fromstring(report.junit().split("\n", 1)[1]).find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "1")
    assert [c.get("name") for c in suite.findall("testcase")] == [v.check for v in report.verdicts]
    assert "read each other" in suite.find("testcase/failure").text
    plain = json.loads(json.dumps(report.to_json()))
    assert {v["check"] for v in plain["verdicts"]} == set(QUICK)
    assert {"torch", "transformers"} <= set(plain["versions"])
    page = verdict_page([report], command="lengthen check x")
    assert "a &lt;model&gt;" in page and page.count("packed_ones_mask") == 2 and "http" not in page.split("</style>")[1]


def test_an_infinite_error_is_written_as_none():
    report = Report("x", (Verdict("a", "fail", float("inf"), 1.0, "why"),))
    assert report.to_json()["verdicts"][0]["error"] is None
    assert "inf" in report.junit()


def test_a_check_that_changes_the_model_is_the_one_that_fails():
    def touch(subject) -> Measured:
        next(subject.model.parameters()).data.add_(1e-3)
        return Measured(0.0, 0.0)

    verdict = guarded(Check("touch", "state", "Nothing.", "m", "c", touch), model_subject(llama()))
    assert verdict.outcome == "error"
    assert "touch changed the weights" in verdict.reason


def test_a_whole_run_leaves_weights_config_mode_and_random_numbers_as_they_were():
    model = SUBJECTS["transformers Llama, dynamic NTK"]().train()
    state = {k: v.clone() for k, v in (*model.state_dict().items(), *model.named_buffers())}
    config, generator = model.config.to_json_string(), torch.get_rng_state()
    check_model(model, skip=["bfloat16_long"])
    assert all(torch.equal(v, state[k]) for k, v in (*model.state_dict().items(), *model.named_buffers()))
    assert model.config.to_json_string() == config
    assert all(m.training for m in model.modules())
    assert torch.equal(torch.get_rng_state(), generator)


def test_a_model_in_half_precision_is_judged_in_float32():
    report = check_model(llama().bfloat16(), only=["cached_chunks", "left_padding", "prefix"])
    assert report.counts() == {"pass": 3}
    assert all(v.tolerance < 1e-3 for v in report.verdicts)


def test_a_model_without_causality_says_why_most_checks_do_not_apply():
    config = tf.BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96)
    report = check_model(config, tiny=True, name="BERT")
    assert not report.failures
    assert report["repeatable"].outcome == report["mask_hides"].outcome == "pass"
    assert "no causal language model" in report["prefix"].reason
    assert all(v.reason for v in report.verdicts if v.outcome == "not applicable")


def test_a_model_that_raises_gives_verdicts_and_no_exception():
    model = llama()
    model.model.layers[0].self_attn.q_proj = nn.Linear(3, 3)
    report = check_model(model, only=["prefix", "repeatable"])
    assert report.counts() == {"error": 2}
    assert "RuntimeError" in report["prefix"].reason


@pytest.mark.parametrize("spec", ["self_extend:group=2", "window:tokens=16", "yarn:factor=4"])
def test_extended_models_pass_what_applies(spec):
    model = llama()
    with extend(model, spec) as extension:
        report = check_model(model, name=spec)
    allowed = {"packed_ones_mask", "position_gaps"} if extension.route == "rotary" else set()
    assert {v.check for v in report.failures} <= allowed, [(v.check, v.reason) for v in report.failures]
    assert report["packed"].outcome == report["cached_chunks"].outcome == "pass"


def test_progress_and_seed():
    seen = []
    first = check_model(llama(), only=["prefix"], seed=1, progress=lambda *how: seen.append(how))
    assert seen == [("prefix", 0, 1)]
    assert first["prefix"].error == check_model(llama(), only=["prefix"], seed=1)["prefix"].error
