"""Whole models: the peers are the same models, and rows hold what they say."""

from importlib.util import find_spec

import pytest
import torch
import torch.nn.functional as F

from lengthen.bench import ModelBench, bench_model
from lengthen.bench import capacity as capacity_module
from lengthen.bench.inference import OwnReader, TransformersReader
from lengthen.bench.models import SIZES, ModelRow, beside, weights
from lengthen.bench.peers import ENCODINGS, SMOLLM2, TEN_MILLION, llama, plain_causal, x_transformers
from lengthen.bench.training import stepper
from lengthen.core import Refusal, UsageError
from lengthen.models import DecoderConfig, make_decoder

TINY = DecoderConfig(vocab=40, layers=2, heads=4, groups=2, width=32)
QUICK = {"size": "tiny", "inference_size": "tiny", "length": 48, "rounds": 3, "new_tokens": 2, "threads": 1}
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
"""x-transformers scripts a function when it is imported."""
needs_peer = pytest.mark.skipif(find_spec("x_transformers") is None, reason="x-transformers is not installed")


def parameters(model) -> int:
    return sum(p.numel() for p in model.parameters())


def test_sizes_are_what_their_names_say():
    assert weights(TEN_MILLION) == pytest.approx(10e6, rel=0.1)
    assert weights(SMOLLM2) == pytest.approx(134.5e6, rel=0.001)
    norms = (2 * TINY.layers + 1) * TINY.width
    assert parameters(make_decoder(TINY, "nope", 32)) == weights(TINY) + norms


def test_plain_causal_is_the_decoder_without_positions():
    """Same weights, so the same logits; its attention is one call of PyTorch's."""
    own, plain = make_decoder(TINY, "nope", 32).double(), plain_causal(TINY, 32).double()
    ids = torch.randint(TINY.vocab, (2, 21), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(plain(ids), own(ids), atol=1e-12, rtol=0)
    assert parameters(plain) == parameters(own)


@needs_peer
@pytest.mark.parametrize("method", sorted(ENCODINGS))
def test_x_transformers_has_the_same_sizes(method):
    own = parameters(make_decoder(TEN_MILLION, method, 64))
    assert parameters(x_transformers(TEN_MILLION, method, 64, flash=False)) == pytest.approx(own, rel=0.005)


@needs_peer
def test_what_a_peer_cannot_do_is_its_reason():
    with pytest.raises(Refusal, match="t5 with attn_flash=True"):
        x_transformers(TINY, "t5", 64, flash=True)
    with pytest.raises(Refusal, match="no counterpart of 'fire'"):
        x_transformers(TINY, "fire", 64, flash=False)
    with pytest.raises(Refusal, match="no counterpart"):
        x_transformers(TINY, "rope+window:tokens=8", 64, flash=False)


def test_a_peer_that_is_not_installed_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("lengthen.bench.peers.find_spec", lambda name: None)
    with pytest.raises(Refusal, match=r"pip install 'lengthen\[bench\]'"):
        x_transformers(TINY, "alibi", 64, flash=False)


def test_llama_has_the_sizes_of_the_decoder():
    config = DecoderConfig(vocab=40, layers=2, heads=4, groups=2, width=32, hidden=48)
    assert parameters(llama(config, torch.float32, 64)) == parameters(make_decoder(config, "rope", 64))
    assert SIZES["smollm2"] == SMOLLM2


@pytest.mark.parametrize(
    "make", [lambda: OwnReader(make_decoder(TINY, "rope", 64)), lambda: TransformersReader(llama(TINY, torch.float32, 64))]
)
def test_readers_continue_what_they_read(make):
    reader = make()
    ids = torch.randint(TINY.vocab, (1, 20), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        whole = reader.read(ids)
        reader.read(ids[:, :17])
        reader.go_on(ids[:, 17:18])
        torch.testing.assert_close(reader.go_on(ids[:, 18:]), whole, atol=1e-5, rtol=0)


def test_a_step_trains():
    model = make_decoder(TINY, "alibi", 32)
    ids = torch.randint(TINY.vocab, (2, 33), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        before = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    step = stepper(model, ids, "float32")
    first = step()
    assert float(first) == pytest.approx(float(before), rel=1e-5)
    for _ in range(5):
        last = step()
    assert float(last) < float(first)


def test_speed_is_ours_over_the_peers_in_the_same_rounds():
    now = 0.0

    def takes(seconds: float):
        def step() -> None:
            nonlocal now
            now += seconds

        return step

    def absent():
        raise Refusal("It is not installed.")

    blank = ModelRow("training", "alibi", "float32", "")
    peers = {"slow": lambda: takes(3.0), "absent": absent}
    slow, none = beside(blank, takes(2.0), peers, 600, rounds=4, budget=1e9, clock=lambda: now, device="cpu")
    assert (slow.peer, slow.tokens_per_s, slow.peer_tokens_per_s, slow.speed, slow.rounds) == ("slow", 300, 200, 1.5, 4)
    assert (none.peer, none.reason, none.speed) == ("absent", "It is not installed.", None)


@needs_peer
def test_every_comparison_gives_its_rows():
    rows = list(bench_model(ModelBench(methods=("alibi", "t5"), **QUICK)))
    seen = [(r.task, r.method, r.peer) for r in rows]
    peers = ("plain causal", "x-transformers", "x-transformers, flash")
    training = [("training", m, p) for m in ("alibi", "t5") for p in peers]
    assert seen == [*training, ("prefill", "rope:base=100000", "transformers"), ("decode", "rope:base=100000", "transformers")]
    assert all(r.speed > 0 and r.speed_low <= r.speed <= r.speed_high for r in rows if r.reason is None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tasks": ("trainign",)}, "'training'"),
        ({"size": "10n"}, "'10m'"),
        ({"methods": ("alibbi",)}, "'alibi'"),
        ({"methods": ()}, "at least one method"),
        ({"dtypes": ("float16",)}, "'float32'"),
        ({"new_tokens": 0}, "new_tokens"),
    ],
)
def test_bad_input_is_named(given, said):
    with pytest.raises(UsageError, match=said):
        ModelBench(**given)


def test_what_cannot_fit_is_refused_before_anything_runs(monkeypatch):
    monkeypatch.setattr(capacity_module, "available", lambda device: 1 << 30)
    with pytest.raises(UsageError, match=r"Inference of smollm2 .* 1\.0 GiB are free"):
        next(iter(bench_model(ModelBench(tasks=("inference",)))))
