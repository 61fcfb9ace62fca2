"""Verdicts follow from the numbers, in both directions."""

import numpy as np
import pytest

from lengthen.claims import verdicts
from lengthen.claims.verdict import judge
from lengthen.evaluate import Comparison

LENGTHS = (128, 256, 512, 1024)


def comparison(
    nats_at: dict[tuple[str, str], list[float]], resolution: dict | None = None, cost: dict | None = None
) -> Comparison:
    """Runs whose loss per token at each length is given, by method and control; documents differ by a constant."""
    methods = tuple(dict.fromkeys(m for m, _ in nats_at))
    wobble = np.linspace(-0.2, 0.2, 8)
    results = []
    for method in methods:
        readings = [
            {
                "protocol": protocol, "length": n, "control": control, "nats": [64 * (v + w) for w in wobble], "tokens": [64] * 8,
                "bytes": None, "least_context": 1, "reason": None,
            }
            for (m, control), values in nats_at.items() if m == method
            for protocol in ("fixed_targets", "non_overlapping")
            for n, v in zip(LENGTHS, values, strict=True)
        ]  # fmt: skip
        run = {"spec": {"method": method, "seed": 0, "train_length": 128}, "evaluation": {"readings": readings}}
        if resolution is not None:
            run["resolution"] = resolution[method]
        results.append(run)
    return Comparison(methods, 128, LENGTHS, {}, results, cost)


def found(c: Comparison, words: str):
    return next(v for v in verdicts(c) if words in v.claim)


def test_a_method_without_an_answer_neither_breaks_nor_stands_for_its_family():
    c = comparison(
        {("learned", "none"): [2, 2, 2, 2], ("sinusoidal", "none"): [2, 3, 3, 3], ("rope", "none"): [2, 2.1, 2.1, 2.1]}
    )
    reading = next(r for r in c.results[0]["evaluation"]["readings"] if r["length"] == 1024)
    reading |= {"nats": [None] * 8, "reason": "The table has 128 positions."}
    assert found(c, "learned").verdict == "no answer" and "The table has 128 positions." in found(c, "learned").measured
    assert found(c, "more robust").verdict == "reproduced" and "sinusoidal" in found(c, "more robust").measured


def test_a_flat_alibi_is_reproduced_and_a_rising_one_is_not():
    assert found(comparison({("alibi", "none"): [2, 2, 2.001, 2.01]}), "flat").verdict == "reproduced"
    assert found(comparison({("alibi", "none"): [2, 2, 2.001, 2.2]}), "flat").verdict == "not reproduced"


def test_the_early_token_curse_needs_falling_windows():
    assert found(comparison({("alibi", "none"): [2, 1.9, 1.85, 1.8]}), "flatter ALiBi").verdict == "reproduced"
    assert found(comparison({("alibi", "none"): [2, 2, 2, 2.1]}), "flatter ALiBi").verdict == "not reproduced"


def test_xpos_must_lose_less_than_half_of_what_rope_loses():
    slow = {("xpos", "none"): [2, 2.0, 2.1, 2.2], ("rope", "none"): [2, 2.5, 3, 4]}
    fast = {("xpos", "none"): [2, 2.5, 2.9, 3.2], ("rope", "none"): [2, 2.5, 3, 4]}
    assert found(comparison(slow), "xPos loses far less").verdict == "reproduced"
    assert found(comparison(fast), "xPos loses far less").verdict == "not reproduced"


def test_bca_must_cure_rope_at_every_length():
    cured = {("rope", "none"): [2, 3, 4, 5], ("rope", "bca"): [2, 2.01, 2.0, 2.02]}
    ill = {("rope", "none"): [2, 3, 4, 5], ("rope", "bca"): [2, 2.01, 2.3, 2.02]}
    assert found(comparison(cured), "Blockwise").verdict == "reproduced"
    assert found(comparison(ill), "Blockwise").verdict == "not reproduced"


def test_resolution_must_fall_for_rope_and_hold_for_xpos_with_bca():
    curve = lambda a, b, c: {"measured": {"128": a, "256": b, "512": c}}
    runs = {("rope", "none"): [2, 2, 2, 2], ("xpos", "none"): [2, 2, 2, 2]}
    good = {"rope": {"none": curve(0.3, 0.1, 0.0)}, "xpos": {"bca": curve(0.3, 0.3, 0.3)}}
    bad = {"rope": {"none": curve(0.1, 0.1, 0.1)}, "xpos": {"bca": curve(0.3, 0.3, 0.3)}}
    assert found(comparison(runs, good), "resolution").verdict == "reproduced"
    assert found(comparison(runs, bad), "resolution").verdict == "not reproduced"


def test_cost_is_judged_by_its_ratio():
    side = lambda length, rate, mib: {"length": length, "tokens_per_s": rate, "peak_mib": mib}
    cost = {"alibi": side(128, 200.0, 50.0), "sinusoidal": side(256, 100.0, 60.0), "speed_ratio": 2.0}
    c = comparison({("alibi", "none"): [2, 2, 2, 2]}, cost=cost)
    assert found(c, "faster").verdict == "reproduced" and "2.00" in found(c, "faster").measured
    slow = comparison({("alibi", "none"): [2, 2, 2, 2]}, cost={**cost, "speed_ratio": 0.9})
    assert found(slow, "faster").verdict == "not reproduced"
    level = {**cost, "alibi": side(128, 200.0, 59.0)}
    assert found(comparison({("alibi", "none"): [2, 2, 2, 2]}, cost=cost), "memory").verdict == "reproduced"
    assert found(comparison({("alibi", "none"): [2, 2, 2, 2]}, cost=level), "memory").verdict == "unresolved"


def test_every_family_has_a_row():
    c = comparison({("sinusoidal", "none"): [2, 3, 4, 5], ("rope", "none"): [2, 3, 4, 5], ("alibi", "none"): [2, 2, 2, 2]})
    rows = [v.claim.split(":")[0] for v in verdicts(c) if v.paper == "2312.17044"]
    assert {"absolute", "rotary", "additive bias"} <= set(rows)
    assert found(c, "Relative encodings").verdict == "reproduced"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.0, 0.01, "reproduced"), (0.04, 0.05, "not reproduced"), (0.0, 0.05, "unresolved"), (None, None, "unresolved")],
)
def test_an_interval_across_the_bound_decides_nothing(low, high, verdict):
    assert judge(low, high, below=0.03) == verdict
