"""tune(): LoRA, interruption and resumption, accumulation, what is refused; on decoders of ours and on transformers' models."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers as tf

from lengthen.core import Refusal, UsageError
from lengthen.data import TokenDocument
from lengthen.hf import extend
from lengthen.models import DecoderConfig, make_decoder
from lengthen.models.store import load_decoder, read_tensors, save_decoder
from lengthen.train import TrainConfig
from lengthen.tune import Dropped, FullLength, Lora, Scattered, ShiftedSparse, SkipWise, TuneConfig, tune, with_specs
from lengthen.tune.hugging_face import HuggingFaceObjective
from lengthen.tune.lora import adapt, discard, merge

ENDS = {"trained": 16, "target": 64}
TRAINING = TrainConfig(steps=12, lr=3e-3, warmup=2, log_every=3, checkpoint_every=4, seed=5)
WAYS = (FullLength(**ENDS), SkipWise(**ENDS), Scattered(**ENDS), ShiftedSparse(**ENDS), Dropped(**ENDS, at=0.5))
named = pytest.mark.parametrize("way", WAYS, ids=lambda w: type(w).__name__)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def documents():
    rng = np.random.default_rng(0)
    return [TokenDocument(f"d{n}", rng.integers(0, 31, 150), "here") for n in range(4)]


def decoder(spec: str = "rope"):
    return make_decoder(DecoderConfig(vocab=31, layers=2, heads=4, groups=2, width=32), spec, 16, seed=2)


def llama(**sizes) -> tf.LlamaForCausalLM:
    torch.manual_seed(0)
    wanted = {
        "vocab_size": 31,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 16,
        "initializer_range": 0.2,
        **sizes,
    }
    return tf.LlamaForCausalLM(tf.LlamaConfig(**wanted)).eval()


def weights(model) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in model.named_parameters()}


def assert_same(a, b) -> None:
    assert a.keys() == b.keys() and [n for n in a if not torch.equal(a[n], b[n])] == []


def curve(folder) -> list[tuple]:
    rows = [json.loads(r) for r in (folder / "train.jsonl").read_text().splitlines()]
    return [(r["step"], r["loss"], r["grad_norm"]) for r in rows]


def stop_at(step: int):
    def progress(done, *_):
        if done >= step:
            raise KeyboardInterrupt

    return progress


@named
@pytest.mark.parametrize("lora", [None, Lora(rank=4)], ids=["whole", "lora"])
@pytest.mark.parametrize("make", [decoder, llama], ids=["decoder", "llama"])
def test_interrupted_and_resumed_it_ends_in_the_same_bits(make, way, lora, documents, tmp_path):
    config = TuneConfig(TRAINING, batch=4, lora=lora, mix=0.25)
    whole = tune(make(), documents, way, config, tmp_path / "whole")
    stopped = tune(make(), documents, way, config, tmp_path / "cut", progress=stop_at(5))
    assert stopped.result.status == "stopped" and stopped.result.steps < 12
    resumed = tune(make(), documents, way, config, tmp_path / "cut", resume=True)
    assert whole.result.status == resumed.result.status == "done"
    assert_same(weights(resumed.model), weights(whole.model))
    assert curve(tmp_path / "cut") == curve(tmp_path / "whole")
    assert weights(whole.model).keys() == weights(make()).keys(), "no adapter stays"
    assert any(not torch.equal(a, b) for a, b in zip(make().parameters(), whole.model.parameters(), strict=True))


def test_a_finished_lora_run_resumes_to_its_own_result(documents, tmp_path):
    config = TuneConfig(TRAINING, batch=4, lora=Lora(4))
    one = tune(decoder(), documents, WAYS[1], config, tmp_path / "run")
    two = tune(decoder(), documents, WAYS[1], config, tmp_path / "run", resume=True)
    assert_same(weights(one.model), weights(two.model))


@pytest.mark.parametrize("make", [decoder, llama], ids=["decoder", "llama"])
def test_lora_begins_as_the_model_and_merges_into_what_it_computes(make):
    ids = torch.randint(0, 31, (2, 16), generator=torch.Generator().manual_seed(0))
    model = make()
    logits = lambda: (out := model(ids))[0] if not isinstance(out := model(ids), torch.Tensor) else out
    before, names = logits().detach(), weights(model).keys()
    adapt(model, Lora(rank=4, alpha=6.0), seed=1)
    assert torch.equal(logits(), before)
    pairs = {}
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_" in name:
                p.normal_(std=0.3, generator=torch.Generator().manual_seed(len(name)))
                pairs.setdefault(name.split(".lora_")[0], {})["A" if "lora_A" in name else "B"] = p.detach().double()
    old = {n: model.get_submodule(n).base_layer.weight.detach().double() for n in pairs}
    unmerged = logits().detach()
    merge(model)
    assert weights(model).keys() == names and all(p.requires_grad for p in model.parameters())
    assert (unmerged - before).abs().max() > 0.1
    torch.testing.assert_close(logits(), unmerged, rtol=1e-4, atol=1e-4)
    for name, pair in pairs.items():  # W + alpha / rank B A
        torch.testing.assert_close(
            model.get_submodule(name).weight.double(), old[name] + 1.5 * pair["B"] @ pair["A"], rtol=0, atol=1e-6
        )


def test_what_lora_trains(documents, tmp_path):
    model = llama()
    adapt(model, Lora(4), seed=0)
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    of = lambda part: {n for n in trained if part in n}
    assert len(of("lora_")) == 2 * 4 * 2 and not of("mlp") and not of("base_layer")
    assert of("embed_tokens") and len(of("norm")) == 2 * 2 + 1
    assert trained == of("lora_") | of("embed_tokens") | of("norm")
    discard(model)
    adapt(model, Lora(4, embeddings=False, norms=False, targets=("q_proj",)), seed=0)
    assert {n.split(".")[-4] for n, p in model.named_parameters() if p.requires_grad} == {"q_proj"}
    discard(model)
    assert_same(weights(model), weights(llama()))
    tune(model, documents, WAYS[1], TuneConfig(TRAINING, lora=Lora(4)), tmp_path / "run")
    kept = read_tensors(tmp_path / "run" / "checkpoint" / "model.safetensors")
    assert not any("mlp" in n or "base_layer" in n for n in kept), "a checkpoint holds what is trained"


@pytest.mark.parametrize("pieces", [2, 3])
@pytest.mark.parametrize("way", WAYS[1:4], ids=lambda w: type(w).__name__)
def test_accumulation_takes_the_same_steps(way, pieces, documents, tmp_path):
    run = lambda n: tune(
        decoder(), documents, way, TuneConfig(replace(TRAINING, accumulate=n, clip=0.5), batch=4, mix=0.25), tmp_path / str(n)
    )
    run(1), run(pieces)
    np.testing.assert_allclose(curve(tmp_path / str(pieces)), curve(tmp_path / "1"), rtol=1e-4)


def test_bf16_trains_float32_weights(documents, tmp_path):
    config = TuneConfig(replace(TRAINING, precision="bf16"), batch=4)
    for make in (decoder, llama):
        tuned = tune(make(), documents, WAYS[1], config, tmp_path / make.__name__)
        assert tuned.result.status == "done" and {p.dtype for p in tuned.model.parameters()} == {torch.float32}
    with pytest.raises(UsageError, match=r"bfloat16.*float32"):
        tune(llama().bfloat16(), documents, WAYS[0], TuneConfig(TRAINING), tmp_path / "half")


@named
def test_a_transformers_model_computes_in_each_arm_what_it_should(way, tmp_path):
    """Each arm's loss against transformers' own forward, or against attention from the definition."""
    model, ids = llama(), torch.randint(0, 31, (2, 16), generator=torch.Generator().manual_seed(0))
    targets = ids.roll(-1, 1)
    loss = lambda logits: torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum").item()
    ones = torch.ones_like(ids)
    plain = loss(model(ids).logits)
    pos = torch.cat((torch.arange(8), torch.arange(40, 48))).expand(2, -1)
    moved = loss(model(ids, position_ids=pos, attention_mask=ones).logits)
    still, sparse = with_no_rotation(model, ids), loss(in_groups(ids, way.size)) if "shifted" in way.arms else None
    objective = HuggingFaceObjective(model, way)
    read = lambda arm, pos=None: objective(ids, targets, arm=arm, pos=pos).item()
    assert read("plain") == pytest.approx(plain, rel=1e-5)
    if "moved" in way.arms:
        assert abs(moved - plain) > 0.01 and read("moved", pos) == pytest.approx(moved, rel=1e-5)
    if "dropped" in way.arms:
        assert abs(loss(still) - plain) > 0.01 and read("dropped") == pytest.approx(loss(still), rel=1e-5)
    if "shifted" in way.arms:
        assert abs(sparse - plain) > 1e-3 and read("shifted") == pytest.approx(sparse, rel=1e-5)
    assert read("plain") == pytest.approx(plain, rel=1e-5)
    objective.release()
    assert loss(model(ids).logits) == plain and model.config.max_position_embeddings == 16


def in_groups(ids, group):
    """Logits of transformers' eager attention under a mask for each head, groups of the last two half a group further on."""
    i = torch.arange(ids.shape[1])
    masks = []
    for shift in (0, 0, group // 2, group // 2):
        of = torch.where(i < shift, -1, (i - shift) // group)
        masks.append((i[:, None] >= i) & (of[:, None] == of))
    mask = torch.zeros(len(ids), 4, len(i), len(i)).masked_fill(~torch.stack(masks), float("-inf"))
    model = llama(attn_implementation="eager")
    return model(ids, attention_mask=mask).logits


def with_no_rotation(model, ids):
    """Logits of the model with cosines of 1 and sines of 0."""
    rotary = model.model.rotary_emb
    still = lambda x, position_ids: (x.new_ones(1, x.shape[1], 8), x.new_zeros(1, x.shape[1], 8))
    old, rotary.forward = rotary.forward, still
    try:
        return model(ids).logits
    finally:
        rotary.forward = old


def test_an_extended_model_is_tuned_under_its_new_scheme(documents, tmp_path):
    model = llama()
    extension = extend(model, "yarn:factor=4")
    before = model(torch.arange(20)[None]).logits.detach()
    tuned = tune(extension, documents, WAYS[1], TuneConfig(TRAINING, batch=4), tmp_path / "yarn")
    assert tuned.model is model and model.config.max_position_embeddings == 64
    after = model(torch.arange(20)[None]).logits
    assert not torch.allclose(before, after)
    other = llama()
    other.load_state_dict(model.state_dict())
    extend(other, "yarn:factor=4")
    assert torch.equal(other(torch.arange(20)[None]).logits, after), "no switch is left on"
    with pytest.raises(UsageError, match="rotations"):
        tune(extend(llama(), "pi:factor=4"), documents, WAYS[1], TuneConfig(TRAINING, batch=4), tmp_path / "yarn", resume=True)


def test_s2_tunes_in_our_attention_and_is_read_in_full(documents, tmp_path):
    model = llama()
    extension = extend(model, "yarn:factor=4", route="turned")
    tune(extension, documents, WAYS[3], TuneConfig(TRAINING, batch=4), tmp_path / "run")
    full = model(torch.arange(30)[None]).logits
    extension.restore()
    with extend(model, "yarn:factor=4"):
        torch.testing.assert_close(model(torch.arange(30)[None]).logits, full, rtol=1e-4, atol=1e-4)


def test_after_drope_the_model_reads_without_positions(documents, tmp_path):
    model, way = llama(), Dropped(**ENDS)
    tune(model, documents, way, TuneConfig(TRAINING, batch=4), tmp_path / "run")
    ids = torch.randint(0, 31, (1, 16))
    expected = with_no_rotation(model, ids)
    with extend(model, way.spec, tokens=64):
        torch.testing.assert_close(model(ids).logits, expected, rtol=1e-4, atol=1e-4)
        assert model(torch.randint(0, 31, (1, 60))).logits.isfinite().all()


def test_the_blocks_of_logits_know_a_model_that_scales_them():
    torch.manual_seed(0)
    sizes = {"vocab_size": 31, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    cohere = tf.CohereForCausalLM(tf.CohereConfig(**sizes, logit_scale=0.25, max_position_embeddings=16, pad_token_id=0)).eval()
    ids = torch.randint(1, 31, (2, 16))
    for model, whole in ((cohere, True), (llama(), False)):
        objective = HuggingFaceObjective(model, WAYS[0])
        assert objective.reader.model.whole is whole
        found = objective(ids, ids.roll(-1, 1), arm="plain", pos=None).item()
        objective.release()
        wanted = torch.nn.functional.cross_entropy(model(ids).logits.flatten(0, 1), ids.roll(-1, 1).flatten(), reduction="sum")
        assert found == pytest.approx(wanted.item(), rel=1e-5)


def test_bad_input_is_refused_before_anything_changes(documents, tmp_path):
    config = TuneConfig(TRAINING, batch=4)
    model, before = llama(), weights(llama())
    fails = lambda kind, words, *given, **how: _fails(kind, words, lambda: tune(*given, **how))
    fails(UsageError, ("60", "65"), model, [TokenDocument("d", np.zeros(60, int), "x")], WAYS[0], config, tmp_path / "a")
    fails(UsageError, ("40", "32"), model, documents, WAYS[1], replace(config, lora=Lora(40)), tmp_path / "a")
    fails(
        UsageError,
        ("w_pack", "q_proj"),
        model,
        documents,
        WAYS[1],
        replace(config, lora=Lora(2, targets=("w_pack",))),
        tmp_path / "a",
    )
    fails(
        UsageError,
        ("4 rows", "5 pieces"),
        model,
        documents,
        WAYS[1],
        TuneConfig(replace(TRAINING, accumulate=5), 4),
        tmp_path / "a",
    )
    _fails(UsageError, ("rank", "0"), lambda: Lora(rank=0))
    _fails(UsageError, ("mix", "1.5"), lambda: TuneConfig(TRAINING, mix=1.5))
    with extend(model, "self_extend:group=4", tokens=64) as extension:
        fails(Refusal, ("only turns",), extension, documents, WAYS[1], config, tmp_path / "a")
        fails(Refusal, ("checkpoint as it is",), extension, documents, WAYS[4], config, tmp_path / "a")
    with extend(model, "pi:factor=4") as extension:
        fails(UsageError, ("route='turned'",), extension, documents, WAYS[3], config, tmp_path / "a")
        fails(UsageError, ("Pass its Extension",), model, documents, WAYS[0], config, tmp_path / "a")
    fails(UsageError, ("restored",), extension, documents, WAYS[0], config, tmp_path / "a")
    assert not (tmp_path / "a").exists()
    assert_same(weights(model), before)


def test_resuming_with_other_settings_names_both(documents, tmp_path):
    config = TuneConfig(TRAINING, batch=4, lora=Lora(4))
    tune(decoder(), documents, WAYS[1], config, tmp_path / "run", progress=stop_at(4))
    again = lambda make, way, config: tune(make(), documents, way, config, tmp_path / "run", resume=True)
    for words, make, way, other in (
        (("chunks': 2", "chunks': 3"), decoder, SkipWise(**ENDS, chunks=3), config),
        (("SkipWise", "FullLength"), decoder, WAYS[0], config),
        (("rank': 4", "rank': 8"), decoder, WAYS[1], replace(config, lora=Lora(8))),
        (("batch=4", "batch=3"), decoder, WAYS[1], replace(config, batch=3)),
        (("mix=0.0", "mix=0.5"), decoder, WAYS[1], replace(config, mix=0.5)),
        (("lr=0.003", "lr=0.1"), decoder, WAYS[1], replace(config, training=replace(TRAINING, lr=0.1))),
        (("frozen=",), lambda: make_decoder(decoder().config, "rope", 16, seed=9), WAYS[1], config),
        (("rotations=",), lambda: decoder("pi:factor=4"), WAYS[1], config),
    ):
        _fails(UsageError, words, lambda make=make, way=way, other=other: again(make, way, other))
    with pytest.raises(UsageError, match="already holds a training run"):
        tune(decoder(), documents, WAYS[1], config, tmp_path / "run")


def _fails(kind, words, call) -> None:
    with pytest.raises(kind) as error:
        call()
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_decoder_takes_other_specs_with_its_weights(tmp_path):
    model = decoder()
    other = with_specs(model, "yarn:factor=4,fast=8", 16)
    assert_same(weights(other), weights(model))
    ids = torch.randint(0, 31, (1, 40))
    assert not torch.allclose(other(ids), model(ids))
    assert torch.equal(with_specs(other, "rope", 16)(ids), model(ids))
    save_decoder(tmp_path / "m", other, ["yarn:factor=4,fast=8"], 16, 0)
    assert torch.equal(load_decoder(tmp_path / "m")(ids), other(ids))
