"""No false alarm: a model of transformers fails what it is known to fail, each confirmed by a script, and nothing else."""

import pytest

from lengthen.conformance.model.suite import check_model
from lengthen.core import Shape, methods
from lengthen.models import Decoder, DecoderConfig

from .subjects import EVERY_ROTARY, KNOWN, PACKING, SUBJECTS

RIGHT = [
    "transformers Llama",
    "transformers Mistral",
    "transformers Qwen2",
    "transformers Qwen3",
    "transformers Gemma",
    "transformers Gemma 3",
    "transformers SmolLM3",
    "transformers GPT-NeoX",
    "transformers Llama, YaRN",
]


@pytest.mark.parametrize("name", SUBJECTS)
def test_nothing_but_the_known_faults(name):
    report = check_model(SUBJECTS[name](), name=name)
    failed = {v.check for v in report.failures}
    assert failed <= KNOWN.get(name, EVERY_ROTARY), [
        (v.check, v.error, v.tolerance, v.reason) for v in report.failures if v.check not in KNOWN.get(name, EVERY_ROTARY)
    ]
    assert not [v for v in report.verdicts if v.outcome == "error"]
    if name in RIGHT:
        assert failed >= PACKING
        assert report["rotary_table_loaded"].outcome == "pass"
        assert report["frequencies"].outcome == "pass"


@pytest.mark.parametrize("spec", ["rope", "alibi", "xpos", "t5", "window"])
def test_our_own_decoder_passes(spec):
    sizes = DecoderConfig(vocab=60, layers=2, heads=4, groups=2, width=48, head_size=16)
    known = methods()
    shape: Shape = sizes.shape(train_length=32)
    scheme = known["rope" if spec == "window" else spec].build(shape)
    if spec == "window":
        scheme = scheme.with_pattern(known["window"].build(shape).pattern)
    report = check_model(Decoder(sizes, scheme), name=spec)
    assert not report.failures, [(v.check, v.error, v.tolerance, v.reason) for v in report.failures]
    assert report.counts()["pass"] >= 10
