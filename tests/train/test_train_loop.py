import json
import math
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from victim import CONFIG, Text, make_model

from lengthen.core import LengthenError, UsageError
from lengthen.models import DecoderConfig, make_decoder
from lengthen.models.store import read_tensors
from lengthen.train import TrainConfig, train

VICTIM = Path(__file__).parent / "victim.py"


@pytest.fixture(autouse=True)
def one_thread():
    """Sums of floats depend on how many threads share them; the subprocesses use one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def lines(folder: Path) -> list[dict]:
    return [json.loads(row) for row in (folder / "train.jsonl").read_text().splitlines()]


def curve(folder: Path) -> list[tuple]:
    return [(row["step"], row["loss"], row["lr"], row["grad_norm"]) for row in lines(folder)]


def weights(model) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    assert [name for name in a if not torch.equal(a[name], b[name])] == []


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The uninterrupted run: its model and its folder."""
    torch.set_num_threads(1)
    model, folder = make_model(), tmp_path_factory.mktemp("whole") / "run"
    assert train(model, Text(), CONFIG, folder).status == "done"
    return model, folder


def test_killed_with_sigkill_it_resumes_to_the_same_bits(whole, tmp_path):
    folder = tmp_path / "run"
    child = subprocess.Popen([sys.executable, VICTIM, folder, str(CONFIG.steps), "0.1"])
    history = folder / "train.jsonl"
    while not (history.exists() and history.read_bytes().count(b"\n") >= 8):
        assert child.poll() is None
        time.sleep(0.002)
    child.kill()
    assert child.wait() == -signal.SIGKILL
    done = json.loads((folder / "checkpoint" / "state.json").read_text())["ledger"]["step"]
    assert 0 < done < CONFIG.steps
    model, source = make_model(), Text()
    result = train(model, source, CONFIG, folder, resume=True)
    assert (result.status, result.steps, source.asked[1]) == ("done", CONFIG.steps, done)
    assert_same(weights(model), weights(whole[0]))
    assert curve(folder) == curve(whole[1])


def test_every_step_is_reported_once_and_on_the_schedule(whole):
    rows = lines(whole[1])
    assert [row["step"] for row in rows] == list(range(2, CONFIG.steps + 1, 2))
    assert rows[0]["lr"] == 3e-3 and rows[-1]["lr"] < 3.1e-4
    assert all(math.isfinite(row["tokens_per_s"]) and row["tokens_per_s"] > 0 for row in rows)


@pytest.mark.parametrize("way", ["signal", "exception"])
def test_an_interrupt_stops_with_a_checkpoint_that_resumes_to_the_same_bits(whole, tmp_path, way):
    folder, model = tmp_path / "run", make_model()
    handler = signal.getsignal(signal.SIGINT)

    def interrupt(step, *_):
        if step == 10 and way == "signal":
            os.kill(os.getpid(), signal.SIGINT)
        elif step == 10:
            raise KeyboardInterrupt

    stopped = train(model, Text(), CONFIG, folder, progress=interrupt)
    assert stopped.status == "stopped" and 10 <= stopped.steps <= 11 and "resume" in stopped.reason
    assert signal.getsignal(signal.SIGINT) is handler
    train(model := make_model(), Text(), CONFIG, folder, resume=True)
    assert_same(weights(model), weights(whole[0]))
    assert curve(folder) == curve(whole[1])


def test_a_finished_run_resumes_to_its_own_result(whole):
    model, folder = make_model(), whole[1]
    result = train(model, Text(), CONFIG, folder, resume=True)
    assert (result.status, result.steps) == ("done", CONFIG.steps)
    assert result.final_loss == lines(folder)[-1]["loss"]
    assert_same(weights(model), weights(whole[0]))


def test_resume_without_a_checkpoint_begins(whole, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "train.jsonl").write_text('{"step": 2}\n')
    train(model := make_model(), Text(), CONFIG, tmp_path / "run", resume=True)
    assert_same(weights(model), weights(whole[0]))
    assert curve(tmp_path / "run") == curve(whole[1])


def test_training_leaves_the_callers_randomness_alone(tmp_path):
    model = make_model()
    torch.manual_seed(5)
    expected = torch.Generator().manual_seed(5)
    train(model, Text(), replace(CONFIG, steps=2), tmp_path / "run")
    assert torch.equal(torch.rand(4), torch.rand(4, generator=expected))


def test_two_processes_take_the_steps_of_one(tmp_path):
    steps = 8
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "true"}
    command = [sys.executable, VICTIM, tmp_path / "two", str(steps), "0"]
    ranks = [{**os.environ, **shared, "RANK": r, "LOCAL_RANK": r} for r in "01"]
    both = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE) for env in ranks]
    ends = [json.loads(p.communicate(timeout=120)[0]) for p in both]
    train(model := make_model(dropout=0.0), Text(), replace(CONFIG, steps=steps), tmp_path / "one")
    assert [e["status"] for e in ends] == ["done", "done"] and ends[0]["final_loss"] == ends[1]["final_loss"]
    one, two = curve(tmp_path / "one"), curve(tmp_path / "two")
    np.testing.assert_allclose(two, one, rtol=2e-5)
    stored = read_tensors(tmp_path / "two" / "checkpoint" / "model.safetensors")
    for name, tensor in stored.items():
        torch.testing.assert_close(tensor, weights(model)[name], rtol=0, atol=2e-5)


def numpy_loss(model, batch) -> float:
    """The mean cross entropy of a decoder without positions, in float64, from its weights alone."""
    w = {name: p.detach().double().numpy() for name, p in model.named_parameters()}
    c = model.config
    norm = lambda x, gain: x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * gain
    x = w["embed.weight"][batch.ids] * math.sqrt(c.width)
    rows, n = batch.ids.shape
    for i in range(c.layers):
        at = f"blocks.{i}."
        qkv = norm(x, w[at + "norms.0.gain"]) @ w[at + "attention.qkv.weight"].T
        q, k, v = (p.reshape(rows, n, c.heads, -1).transpose(0, 2, 1, 3) for p in np.split(qkv, 3, axis=-1))
        scores = np.where(np.tri(n, dtype=bool), q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1]), -np.inf)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        y = (e / e.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(rows, n, -1)
        x = x + y @ w[at + "attention.out.weight"].T
        gate, up = np.split(norm(x, w[at + "norms.1.gain"]) @ w[at + "mlp.gate_up.weight"].T, 2, axis=-1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[at + "mlp.down.weight"].T
    logits = norm(x, w["norm.gain"]) @ w["embed.weight"].T
    nats = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, batch.targets.clip(0)[..., None], -1)[..., 0]
    return nats[batch.targets >= 0].mean()


def test_compared_methods_start_from_the_same_weights_and_read_the_same_rows(tmp_path):
    sizes, config = DecoderConfig(vocab=31, layers=2, heads=2, width=16), TrainConfig(steps=5, log_every=1)
    nope, alibi = (make_decoder(sizes, name, train_length=12, seed=4) for name in ("nope", "alibi"))
    assert_same(weights(nope), weights(alibi))
    expected = numpy_loss(nope, Text().at(0))
    read = [Text(), Text()]
    train(nope, read[0], config, tmp_path / "nope")
    after = make_decoder(sizes, "alibi", train_length=12, seed=4)
    assert_same(weights(after), weights(alibi))
    train(alibi, read[1], config, tmp_path / "alibi")
    assert read[0].asked == read[1].asked == [0, 0, 1, 2, 3, 4]
    assert lines(tmp_path / "nope")[0]["loss"] == pytest.approx(expected, rel=1e-6)
    assert lines(tmp_path / "alibi")[0]["loss"] != pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("lr, word", [(1e30, "nan|inf"), (3.0, "diverged")])
def test_a_run_that_explodes_fails_with_its_reason_and_keeps_its_last_good_state(tmp_path, lr, word):
    config = TrainConfig(steps=200, lr=lr, warmup=0, clip=None, log_every=5, checkpoint_every=3, diverged_steps=20)
    sizes = DecoderConfig(vocab=31, layers=2, heads=2, width=16)
    result = train(make_decoder(sizes, "nope", 12), Text(), config, tmp_path / "run")
    assert result.status == "failed" and result.steps < 200
    assert any(w in result.reason for w in word.split("|")) and f"step {result.steps}" in result.reason
    kept = read_tensors(tmp_path / "run" / "checkpoint" / "model.safetensors")
    state = json.loads((tmp_path / "run" / "checkpoint" / "state.json").read_text())
    assert state["ledger"]["step"] < result.steps and state["ledger"]["diverging"] == 0
    assert all(t.isfinite().all() for t in kept.values())
    other = train(make_decoder(sizes, "nope", 12), Text(), replace(config, steps=5, lr=1e-3), tmp_path / "other")
    assert other.status == "done"


@pytest.fixture
def small_disk():
    """Files cannot grow beyond 4000 bytes while it is on, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4000, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_an_error_that_leaves_the_previous_checkpoint_whole(whole, tmp_path, small_disk):
    def fill(step, *_):
        if step == 8:
            small_disk()

    with pytest.raises(LengthenError, match=r"checkpoint of step 14 to .*before is whole"):
        train(make_model(), Text(), CONFIG, tmp_path / "run", progress=fill)
    state = json.loads((tmp_path / "run" / "checkpoint" / "state.json").read_text())
    assert state["ledger"]["step"] == 7
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["checkpoint", "train.jsonl"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    train(model := make_model(), Text(), CONFIG, tmp_path / "run", resume=True)
    assert_same(weights(model), weights(whole[0]))


@pytest.fixture
def begun(tmp_path):
    """A folder with a run of four steps."""
    config = replace(CONFIG, steps=4)
    train(make_model(), Text(), config, tmp_path / "run")
    return tmp_path / "run", config


def test_a_folder_that_holds_a_run_is_refused(begun):
    folder, config = begun
    with pytest.raises(UsageError, match="already holds a training run"):
        train(make_model(), Text(), config, folder)


def test_resuming_another_run_is_refused_and_changes_nothing(begun):
    folder, config = begun
    other = make_decoder(DecoderConfig(vocab=31, layers=2, heads=2, width=32), "nope", 12)
    cases = [
        (make_model(), Text(), replace(config, lr=1e-3), r"lr=0.003 and would resume with lr=0.001"),
        (make_model(), Text(), replace(config, precision="bf16"), r"precision='fp32'"),
        (make_model(), Text(rows=4), config, r"tokens_per_step was 36 and is 48"),
        (make_model(), Text(seed=1), config, r"first_batch"),
        (other, Text(), config, r"of another model: it has, unasked, blocks"),
    ]
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    for model, source, config, message in cases:
        untouched = weights(model)
        with pytest.raises(UsageError, match=message):
            train(model, source, config, folder, resume=True)
        assert_same(weights(model), untouched)
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("harm", ["cut", "gone"])
def test_a_damaged_checkpoint_is_named_and_changes_nothing(begun, name, harm):
    folder, config = begun
    path = folder / "checkpoint" / name
    content = path.read_bytes()
    path.unlink()
    if harm == "cut":
        path.write_bytes(content[:100])
    untouched = weights(model := make_model())
    with pytest.raises(UsageError, match=f"{name}.* damaged" if harm == "cut" else f"There is no {name} in .*holds "):
        train(model, Text(), config, folder, resume=True)
    assert_same(weights(model), untouched)


def test_lost_lines_are_noticed(begun):
    folder, config = begun
    (folder / "train.jsonl").write_bytes(b"")
    with pytest.raises(UsageError, match="lines are lost"):
        train(make_model(), Text(), config, folder, resume=True)


def test_tokens_outside_the_vocabulary_are_refused(tmp_path):
    model = make_decoder(DecoderConfig(vocab=20, layers=1, heads=2, width=16), "nope", 12)
    with pytest.raises(UsageError, match=r"tokens from \d+ to \d+, and the model has a vocabulary of 20"):
        train(model, Text(), CONFIG, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_bf16_keeps_weights_and_loss_in_float32_and_learns(tmp_path):
    config = replace(CONFIG, steps=100, precision="bf16")
    model = make_decoder(DecoderConfig(vocab=31, layers=1, heads=2, width=16), "nope", 12)
    result = train(model, Text(), config, tmp_path / "run")
    assert all(p.dtype == torch.float32 for p in model.parameters())
    rows = lines(tmp_path / "run")
    assert result.final_loss < 0.7 * rows[0]["loss"]
    assert float(np.float32(rows[0]["loss"])) == pytest.approx(numpy_loss_of_first(config), rel=0.02)


def numpy_loss_of_first(config: TrainConfig) -> float:
    """Mean of the first two steps' losses, the second approximated by the weights of the first."""
    model = make_decoder(DecoderConfig(vocab=31, layers=1, heads=2, width=16), "nope", 12)
    return (numpy_loss(model, Text().at(0)) + numpy_loss(model, Text().at(1))) / 2
