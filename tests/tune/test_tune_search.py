"""The search for factors: constraints as properties, an optimum that is known, resumption, and what scores."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthen.core import Geometric, Refusal, Scheme, UsageError, build
from lengthen.core.registry import Shape
from lengthen.data import ByteTokenizer, TokenDocument
from lengthen.hf import extend
from lengthen.methods.rope import Rotary
from lengthen.models import DecoderConfig, make_decoder
from lengthen.tune.search import (
    Candidate,
    EvolutionConfig,
    LongRoPE2Space,
    LongRoPESpace,
    evolve,
    needle_rows,
    rotation_of,
    search,
    spec_of,
    text_rows,
)
from lengthen.tune.search.longrope2 import turning_pair

SPACES = (
    LongRoPESpace(32, 4.0, 2048, starts=(0, 4, 64)),
    LongRoPESpace(2, 2.0, 64),
    LongRoPESpace(16, 1.0, 64),
    LongRoPE2Space(64, 4.0, 2048),
    LongRoPE2Space(96, 32.0, 2048),
)
any_space = pytest.mark.parametrize("space", SPACES, ids=lambda s: f"{type(s).__name__}-{s.dim}-{s.scale:g}")


def lawful(space, c: Candidate) -> bool:
    """The constraints as the papers state them, written apart from `contains`."""
    values, s, pairs = c.factors, space.scale, space.dim // 2
    if len(values) != pairs or any(b < a - 1e-12 for a, b in pairwise(values)):
        return False
    if isinstance(space, LongRoPESpace):
        return c.start in space.starts and all(1 - 1e-9 <= v <= 1.25 * s + 1e-9 for v in values)
    tail, head = values[c.critical :], values[: c.critical]
    ends = all(s - 1e-9 <= v <= 2 * s + 1e-9 for v in tail)
    # NTK: one base for all pairs before the critical one, such that this one is divided by its factor.
    theta = 10_000.0 ** (-2 * c.critical / space.dim)
    base = (theta / tail[0]) ** (-space.dim / (2 * c.critical))
    ntk = [10_000.0 ** (-2 * i / space.dim) / base ** (-2 * i / space.dim) for i in range(c.critical)]
    return ends and c.start == 0 and np.allclose(head, ntk, rtol=1e-9)


@any_space
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), probability=st.sampled_from([0.1, 0.3, 1.0]))
def test_every_move_keeps_the_constraints(space, seed, probability):
    rng = np.random.default_rng(seed)
    pool = space.starting()
    assert all(lawful(space, c) and space.contains(c) for c in pool)
    for _ in range(12):
        a, b = (pool[int(rng.integers(len(pool)))] for _ in range(2))
        new = space.mutate(a, rng, probability) if rng.random() < 0.5 else space.cross(a, b, rng, probability)
        assert lawful(space, new) and space.contains(new), new
        pool.append(new)


def test_contains_refuses_what_breaks_a_constraint():
    space = LongRoPESpace(8, 4.0, 64)
    good = (1.0, 2.0, 3.0, 5.0)
    assert space.contains(Candidate(good))
    for bad in ((2.0, 1.0, 3.0, 4.0), (0.9, 2.0, 3.0, 4.0), (1.0, 2.0, 3.0, 5.01)):
        assert not space.contains(Candidate(bad))
    assert not space.contains(Candidate(good, start=4))
    second = LongRoPE2Space(64, 4.0, 2048)
    c = second.starting()[0]
    assert not second.contains(Candidate((1.0,) * 32, 0, c.critical))
    assert not second.contains(Candidate(c.factors, 0, None)) and not second.contains(Candidate(c.factors, 0, 1))


@pytest.mark.parametrize("dim, base, trained, pair", [(96, 10_000.0, 2048, 31), (128, 500_000.0, 8192, 35)])
def test_critical_pairs_are_the_papers(dim, base, trained, pair):
    """Phi-3-mini and LLaMA-3-8B, section 2 of arXiv:2502.20082; the pair must be the first that does not turn once."""
    assert turning_pair(1, dim, base, trained) == pair
    turns = trained * base ** (-2 * np.arange(dim // 2) / dim) / (2 * math.pi)
    assert turns[pair] <= 1 < turns[pair - 1]
    ten = turning_pair(10, dim, base, trained)
    assert turns[ten] <= 10 < turns[ten - 1]
    assert LongRoPE2Space(dim, 4.0, trained, base).critical == range(ten, pair + 1)


def far_from(best: tuple[float, ...]):
    goal = np.log(best)
    return lambda c: float(np.exp(((np.log(c.factors) - goal) ** 2).mean()))


def test_it_finds_a_known_optimum_better_than_random_at_equal_scores(tmp_path):
    """The objective is a distance to factors that no known rule has. Random: uniform monotone draws, and lone mutations."""
    space = LongRoPESpace(32, 8.0, 2048)
    best = tuple(np.sort(np.random.default_rng(5).uniform(1, 9, 16)).tolist())
    score = far_from(best)
    config = EvolutionConfig(population=32, generations=40, parents=16)
    for seed in range(3):
        found = evolve(space, score, EvolutionConfig(**{**config.__dict__, "seed": seed}), tmp_path / str(seed))
        rng = np.random.default_rng(seed)
        uniform = min(score(Candidate(tuple(np.sort(rng.uniform(1, 10, 16))))) for _ in range(found.scores))
        known = space.starting()
        lone = min(score(space.mutate(known[n % 3], rng, 0.3)) for n in range(found.scores))
        assert found.score < found.first and found.scores <= config.scores and space.contains(found.best)
        assert found.score - 1 < 0.7 * (min(uniform, lone) - 1), (found.score, uniform, lone)  # the optimum scores 1


def small(**changes) -> EvolutionConfig:
    return EvolutionConfig(**{"population": 8, "generations": 4, "parents": 4, "mutations": 3, "crossovers": 3, **changes})


@any_space
def test_stopped_anywhere_it_resumes_to_the_same_numbers(space, tmp_path):
    score = far_from(tuple(np.linspace(1, space.scale, space.dim // 2)))
    whole = evolve(space, score, small(), tmp_path / "whole")
    read = lambda place: json.loads((tmp_path / place / "search.json").read_text())
    for budget in (1, 5, 8, 9, 13, None):
        cut = evolve(space, score, small(), tmp_path / "cut", resume=True, most_scores=budget)
    assert cut == whole and cut.status == "done" and read("cut") == read("whole")
    assert len({json.dumps(s["candidate"]) for s in read("whole")["scored"]}) == whole.scores, "nothing is scored twice"


def test_interrupts_and_budgets_stop_with_the_best_so_far(tmp_path):
    space, calls = SPACES[0], []

    def score(c):
        calls.append(c)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return far_from((2.0,) * 16)(c)

    stopped = evolve(space, score, small(), tmp_path / "a")
    assert stopped.status == "stopped" and stopped.scores == 5 and "resume" in stopped.reason
    spent = evolve(space, score, small(), tmp_path / "b", most_scores=3)
    assert spent.scores == 3 and "3 scores" in spent.reason and spent.score == min(map(far_from((2.0,) * 16), space.starting()))
    heard = []
    timed = evolve(space, score, small(), tmp_path / "c", seconds=1e9, progress=lambda *at: heard.append(at))
    assert timed.status == "done" and [h[0] for h in heard] == list(range(1, timed.scores + 1))
    assert heard[-1][2] == timed.score and heard[0][1] == small().scores
    with pytest.raises(UsageError, match="before its first score"):
        evolve(space, score, small(), tmp_path / "d", seconds=1e-12)


def test_scores_that_are_no_numbers_are_as_bad_as_can_be(tmp_path):
    space = SPACES[0]
    good = space.starting()[1]
    found = evolve(space, lambda c: 2.0 if c == good else math.nan, small(generations=1), tmp_path / "s")
    assert found.best == good and found.score == 2.0


def test_searches_are_refused_with_both_numbers(tmp_path):
    space, score = SPACES[0], far_from((2.0,) * 16)
    evolve(space, score, small(), tmp_path / "s", most_scores=2)
    for words, call in (
        (("seed=0", "seed=1"), lambda: evolve(space, score, small(seed=1), tmp_path / "s", resume=True)),
        (("scale=4.0", "scale=8.0"), lambda: evolve(LongRoPESpace(32, 8.0, 2048, starts=(0, 4, 64)), score, small(), tmp_path / "s", resume=True)),
        (("rows='a'",), lambda: evolve(space, score, small(), tmp_path / "s", facts={"rows": "a"}, resume=True)),
        (("already holds",), lambda: evolve(space, score, small(), tmp_path / "s")),
        (("9 parents", "population of 8"), lambda: small(parents=9)),
        (("2048", "4096"), lambda: LongRoPESpace(32, 4.0, 2048, starts=(4096,))),
        (("0.5",), lambda: LongRoPESpace(32, 0.5, 2048)),
    ):  # fmt: skip
        with pytest.raises(UsageError) as error:
            call()
        assert all(w in str(error.value) for w in words), str(error.value)


@pytest.mark.parametrize("start", [0, 3, 8])
def test_the_rotation_divides_frequencies_from_its_token_on(start):
    own, factors = Rotary(Geometric(10_000.0), 8), (1.0, 1.5, 2.0, 4.0)
    pos = torch.tensor([[0.0, 1, 2, 3, 7, 8, 9, 1e6]], dtype=torch.float64)
    found = rotation_of(Candidate(factors, start), own, 1.1).factors(pos, pos[:, :1], True)
    for n, p in enumerate(pos[0].tolist()):
        for i, factor in enumerate(factors):
            angle = p * 10_000.0 ** (-i / 4) / (factor if p >= start else 1.0)
            assert found[0, n, i].item() == pytest.approx(1.1 * complex(math.cos(angle), math.sin(angle)), abs=1e-8)


def test_the_spec_is_the_rotation():
    own = Rotary(Geometric(10_000.0), 8)
    candidate = Candidate((1.0, 1.5, 2.01, 4.0 / 3 * 2))
    spec = spec_of(candidate, 4.0, 1.17)
    pos = torch.arange(0, 300, 7, dtype=torch.float64)[None]
    made = build(spec, Shape(2, 2, 8, 16, 64)).rotation
    torch.testing.assert_close(made.factors(pos, pos, True), rotation_of(candidate, own, 1.17).factors(pos, pos, True))
    assert spec_of(Candidate((1.0,) * 4, 2), 4.0, 1.0) is None


def text(size: int, seed: int = 0) -> TokenDocument:
    words = np.random.default_rng(seed).choice([b"alpha ", b"beta ", b"gamma, ", b"delta. "], size)
    return TokenDocument("d", np.frombuffer(b"".join(words), dtype=np.uint8).astype(np.int64)[:size], "here")


@pytest.mark.parametrize("needles", [1, 3])
def test_needles_are_hidden_once_asked_once_and_alone_scored(needles):
    encode = ByteTokenizer().encode
    rows = needle_rows([text(900)], 600, 3, encode, needles, seed=4)
    assert len({r.ids.numpy().tobytes() for r in rows}) == 3
    for row in rows:
        assert row.ids.shape == row.targets.shape == (1, 600)
        whole = bytes([*row.ids[0].tolist(), row.targets[0, -1].item()]).decode()
        scored = (row.targets[0] >= 0).nonzero()[:, 0].tolist()
        # Each target is the token that follows, in the text itself.
        assert all(row.targets[0, n].item() == whole.encode()[n + 1] for n in scored)
        answers = "".join(whole[n + 1] for n in scored)
        assert len(answers) == needles * len(" 12345.")
        for answer in answers.split(".")[:-1]:
            assert whole.count(answer) == 2, "once hidden, once asked for"
            assert whole.index(answer) < 600 - needles * len("\nThe number of Basel is 12345.")
    with pytest.raises(UsageError, match=r"3 needles.* of 60 tokens"):
        needle_rows([text(900)], 60, 1, encode, 3)
    with pytest.raises(UsageError, match="1 to 12"):
        needle_rows([text(900)], 600, 1, encode, 13)


def mean_nats(logits, row) -> float:
    logits = logits[0].double()
    nats = torch.nn.functional.cross_entropy(logits, row.targets[0], ignore_index=-100, reduction="mean")
    return nats.exp().item()


@pytest.mark.parametrize("kind, starts", [("longrope", (0,)), ("longrope", (0, 4)), ("longrope2", (0,))])
def test_searching_a_decoder(kind, starts, tmp_path):
    model = make_decoder(DecoderConfig(vocab=256, layers=1, heads=2, width=32), "rope:base=100.0", 32, seed=0)
    rows = text_rows([text(300), text(300, 1), text(20)], 64, 2)
    how = {"trained": 32, "target": 64, "base": 100.0, "kind": kind, "starts": starts}
    config = small(generations=2)
    found = search(model, rows, folder=tmp_path / "s", config=config, **how)
    assert found.found.score <= found.found.first and found.found.status == "done"
    again = search(model, rows, folder=tmp_path / "s", config=config, resume=True, **how)
    assert again.found == found.found and (found.spec is None) == (found.found.best.start > 0)
    arm = model.under(lambda s: Scheme(rotation=found.rotation))
    with torch.no_grad():
        each = [math.log(mean_nats(arm(r.ids), r)) for r in rows]
    assert found.found.score == pytest.approx(math.exp(sum(each) / 2), rel=1e-4)
    assert len(rows) == 2 and all(r.ids.shape == (1, 64) for r in rows)


def test_searching_a_transformers_model_leaves_it_alone_and_its_spec_extends_it(tmp_path):
    import transformers as tf

    torch.manual_seed(0)
    sizes = {"vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**sizes, max_position_embeddings=32, initializer_range=0.3)).eval()
    rows = needle_rows([text(900)], 256, 2, ByteTokenizer().encode, 1)
    before = model(rows[0].ids).logits
    config = small(generations=1)
    found = search(model, rows, trained=32, target=256, base=10_000.0, folder=tmp_path / "s", config=config)
    assert torch.equal(model(rows[0].ids).logits, before)
    with extend(model, found.spec), torch.no_grad():
        each = [math.log(mean_nats(model(r.ids).logits, r)) for r in rows]
        assert model.config.max_position_embeddings == 256
    assert found.found.score == pytest.approx(math.exp(sum(each) / 2), rel=1e-3)


def test_models_without_one_spectrum_are_refused(tmp_path):
    rows, how = text_rows([text(300)], 64, 1), {"trained": 32, "target": 64, "base": 1e4, "folder": tmp_path / "s"}
    for spec in ("alibi", "xpos"):
        model = make_decoder(DecoderConfig(vocab=256, layers=1, heads=2, width=32), spec, 32)
        with pytest.raises(Refusal, match="one spectrum"):
            search(model, rows, **how)
    model = make_decoder(DecoderConfig(vocab=256, layers=1, heads=2, width=32), "rope", 32)
    with pytest.raises(UsageError, match="'longrope2'"):
        search(model, rows, kind="longrope3", **how)
    with pytest.raises(UsageError, match=r"16 .*32"):
        search(model, rows, **{**how, "target": 16})
