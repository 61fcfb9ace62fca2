"""The PoSE experiment: its arithmetic on numbers made by hand, and a miniature of it from end to end."""

import json

import pytest
import torch

from lengthen.recipes.pose import PoseConfig, arms, pose, table
from lengthen.tune import FullLength, Scattered, SkipWise


def test_the_table_pairs_documents_and_seeds():
    config = PoseConfig(length=4, specs=("pi:factor=4",))
    at = lambda *nats: {4: [1.0, 1.0], 16: list(nats)}
    found = {
        "rope, untuned": {0: at(5.0, 5.0), 1: at(5.0, 7.0)},
        "pi:factor=4, full length": {0: at(1.0, 2.0), 1: at(3.0, 4.0)},
        "pi:factor=4, PoSE": {0: at(1.5, 2.5), 1: at(3.5, 4.5)},
    }
    rows = {row.split(" | ")[0].strip("| "): row.split(" | ") for row in table(config, found).splitlines()[2:]}
    assert rows["rope, untuned"][1:3] == ["1.000", "5.500"] and rows["rope, untuned"][3].strip(" |") == ""
    assert rows["pi:factor=4, full length"][2] == "2.500"
    # Every pair differs by one half, so the interval has no width.
    assert rows["pi:factor=4, PoSE"][2:] == ["3.000", "+0.500 (+0.500 to +0.500) |"]


def test_arms_are_the_ones_that_are_compared():
    made = arms(PoseConfig())
    kinds = {name: None if way is None else (type(way[0]), way[0].row * way[1]) for name, way in made.items()}
    assert kinds == {
        "untuned": None,
        "full length": (FullLength, 8192),
        "full length, equal tokens": (FullLength, 2048),
        "PoSE": (SkipWise, 2048),
        "randomised": (Scattered, 2048),
    }


def test_a_miniature_runs_once_and_is_read_back(tmp_path):
    torch.set_num_threads(1)
    small = {
        "length": 16,
        "seeds": (0,),
        "base_steps": 3,
        "base_batch": 2,
        "steps": 2,
        "batch": 4,
        "documents": 2,
        "targets": 8,
    }
    config = PoseConfig(specs=("pi:factor=4",), **small)
    calls = []
    first = pose(config, tmp_path, lambda *at: calls.append(at))
    done = len(calls)
    again = pose(config, tmp_path, lambda *at: calls.append(at))
    assert done == 5 and len(calls) == done and set(first["arms"]) == set(again["arms"]) and len(first["arms"]) == 6
    for name, by_seed in first["arms"].items():
        for length, nats in by_seed[0].items():
            assert nats == pytest.approx(again["arms"][name][0][length], abs=1e-6) and len(nats) == 2
    assert sorted(json.loads((tmp_path / "result.json").read_text())["arms"]["pi:factor=4, PoSE"]["0"]) == ["16", "32", "64"]
