"""Every live fault of transformers 5.24 that is known is found by its check, and shown by a script without lengthen."""

import contextlib
import io
import re
import runpy
from pathlib import Path

import pytest
import torch
import transformers

from lengthen.conformance.model.suite import check_model

from .subjects import SUBJECTS

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))


def facts(script: Path) -> tuple[str, str, float]:
    """Subject, check, and the largest number that a right library would print."""
    found = re.search(r"^Subject: (.+); check: (\w+); right: (\S+)$", script.read_text(encoding="utf-8"), re.M)
    return found[1], found[2], float(found[3])


def printed(script: Path) -> float:
    out = io.StringIO()
    with torch.random.fork_rng(), contextlib.redirect_stdout(out):
        runpy.run_path(str(script))
    return float(out.getvalue().split()[-1])


@pytest.mark.skipif(not transformers.__version__.startswith("5.24"), reason="faults of transformers 5.24")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_a_script_and_the_check_agree(script):
    subject, check, bound = facts(script)
    assert "lengthen" not in script.read_text(encoding="utf-8")
    assert printed(script) > bound
    verdict = check_model(SUBJECTS[subject](), name=subject, only=[check])[check]
    assert verdict.outcome == "fail", f"{verdict.outcome}: {verdict.measured()}{verdict.reason}"
    assert verdict.meaning
    assert verdict.cause


def test_every_kind_of_fault_has_a_script():
    shown = {facts(script)[1] for script in SCRIPTS}
    assert shown >= {
        "cached_switch",
        "prefix",
        "batch_mates",
        "earlier_requests",
        "generate",
        "generate_batch",
        "position_gaps",
        "packed_ones_mask",
        "packed_defaults",
        "positions_read",
        "left_padding",
        "alibi_bias",
        "alibi_bias_bfloat16",
        "rotary_table_converted",
        "frequencies",
    }
