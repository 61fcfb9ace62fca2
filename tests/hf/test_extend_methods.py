"""Every method that extend() takes: a paper's formula in float64, chunks, padding, generation, and the trained window."""

import numpy as np
import pytest
import torch
from papers import CONTENT, HEADS, PAPERS, L
from reference import llama_logits
from tiny import TRAINED, apart, ids, in_chunks, llama, logits

from lengthen.core import LengthenError, get, methods, parse
from lengthen.hf import extend

EXACT = 1e-4
"""Units of the deviation: float32 through two layers; the first fault of a position is thousands of times as large."""
EVERY = [*PAPERS, *sorted(CONTENT)]


@pytest.fixture
def model():
    return llama()


def test_no_method_that_extend_takes_is_left_out():
    assert TRAINED == L
    taken = set()
    for name in methods():
        try:
            extend(llama(), name)
            taken.add(name)
        except LengthenError:
            continue
    assert taken == {method.name for spec in EVERY for method, _ in parse(spec)}


@pytest.mark.parametrize("spec", PAPERS)
@pytest.mark.parametrize("tokens", [1, 61])
def test_logits_are_those_of_the_paper(model, spec, tokens):
    x, paper = ids(tokens, rows=1), PAPERS[spec]
    scheme = extend(model, spec).schemes[None]
    far = paper.apart(tokens)
    heat = None if paper.heat is None else np.array([paper.heat(i) for i in range(tokens)])
    bias = None if paper.bias is None else paper.bias(np.nan_to_num(far), scheme)
    assert bias is None or bias.shape == (HEADS, tokens, tokens)
    expected = llama_logits(model, x[0], far, paper.inv_freq, paper.scale, heat, bias)
    assert apart(logits(model, x)[0], expected) < EXACT


@pytest.mark.parametrize("spec", EVERY)
def test_chunks_and_padding_change_nothing(model, spec):
    extend(model, spec)
    x = ids(50)
    whole = logits(model, x)
    for chunks in ((1,), (5,), (7,)):
        assert apart(in_chunks(model, x, chunks), whole) < EXACT
    mask = torch.ones_like(x)
    mask[1, :13] = 0
    alone = logits(model, x[1:, 13:])[0]
    assert apart(logits(model, x, attention_mask=mask)[1, 13:], alone) < EXACT
    assert apart(in_chunks(model, x, (20, 1, 7), mask)[1, 13:], alone) < EXACT


@pytest.mark.parametrize("spec", EVERY)
def test_the_first_logits_do_not_depend_on_how_many_follow(model, spec):
    extend(model, spec)
    x = ids(70)
    assert apart(logits(model, x)[:, :20], logits(model, x[:, :20])) < EXACT


@pytest.mark.parametrize("spec", EVERY)
def test_generate_says_the_same_with_and_without_a_cache(model, spec):
    extend(model, spec)
    x = ids(40)
    mask = torch.ones_like(x)
    mask[1, :13], x[1, :13] = 0, 0
    cached, plain = (
        model.generate(x, attention_mask=mask, max_new_tokens=8, do_sample=False, use_cache=use) for use in (True, False)
    )
    assert torch.equal(cached, plain)


FACTORS = [name for name in methods() if name not in CONTENT and not get(name).modifies]
FACTORS = [n for n in FACTORS if {"base", "factor"} <= {o.name for o in get(n).options}]


@pytest.mark.parametrize("name", [n for n in FACTORS if n != "resonance"])
def test_by_a_factor_of_one_the_model_says_what_it_said(model, name):
    x = ids(60)
    before = logits(model, x)
    extend(model, name, tokens=TRAINED)
    assert apart(logits(model, x), before) < EXACT
