import io
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from victim import Slope, make_model

from lengthen.core import Scheme, UsageError
from lengthen.models import Decoder, DecoderConfig, make_decoder
from lengthen.train import Objective, TrainConfig, learning_rate, make_optimizer, progress_bar
from lengthen.train.interrupt import Interrupt
from lengthen.train.ledger import Ledger


def test_the_learning_rate_rises_linearly_and_falls_as_a_cosine():
    config = TrainConfig(steps=110, lr=0.5, warmup=10, lr_floor=0.2)
    assert [learning_rate(config, s) for s in (0, 4, 9, 10)] == pytest.approx([0.05, 0.25, 0.5, 0.5])
    assert learning_rate(config, 60) == pytest.approx((0.5 + 0.1) / 2)
    assert learning_rate(config, 35) == pytest.approx(0.1 + 0.4 * (2 + math.sqrt(2)) / 4)
    assert learning_rate(config, 110) == pytest.approx(0.1)
    assert learning_rate(TrainConfig(steps=1, lr=0.5, warmup=0), 0) == 0.5
    assert learning_rate(TrainConfig(steps=1, lr=0.5, warmup=1), 0) == 0.5


@pytest.mark.parametrize("steps, warm", [(5, 0), (400, 40), (5000, 100)])
def test_the_default_warm_up(steps, warm):
    assert TrainConfig(steps=steps).warmup_steps == warm


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"steps": 0}, "'steps'.*at least 1, got 0"),
        ({"steps": 10, "warmup": 11}, "warm-up of 11 steps does not fit into 10"),
        ({"steps": 10, "lr": -1.0}, "'lr'.*got -1.0"),
        ({"steps": 10, "lr": math.nan}, "'lr'"),
        ({"steps": 10, "lr": math.inf}, "finite"),
        ({"steps": 10, "beta2": 1.0}, r"'beta2'.*\[0, 1\), got 1.0"),
        ({"steps": 10, "lr_floor": 1.5}, r"\[0, 1\], got 1.5"),
        ({"steps": 10, "weight_decay": -0.1}, "'weight_decay'"),
        ({"steps": 10, "clip": 0}, "'clip'.*got 0"),
        ({"steps": 10, "precision": "fp16"}, "'fp32' or 'bf16', got 'fp16'"),
        ({"steps": 10, "checkpoint_every": 2.5}, "'checkpoint_every'.*got 2.5"),
        ({"steps": 10, "seed": -1}, "'seed'"),
    ],
)
def test_impossible_settings_are_refused_with_their_numbers(settings, message):
    with pytest.raises(UsageError, match=message):
        TrainConfig(**settings)


def test_the_first_step_is_adamw_with_decay_on_outer_matrices_only():
    """After one step the two moments cancel: p (1 - lr wd) - lr g / (|g| + 1e-8)."""
    shared = Scheme(terms=[Slope(2)])
    model = Decoder(DecoderConfig(vocab=31, layers=3, heads=2, width=16, qk_norm=True), [shared] * 3)
    config = TrainConfig(steps=10, lr=0.01, weight_decay=0.3, scheme_lr=4.0)
    optimizer = make_optimizer(model, config)
    held = [p for group in optimizer.param_groups for p in group["params"]]
    assert len(held) == len({id(p) for p in held}) == len(list(model.parameters()))
    for group in optimizer.param_groups:
        group["lr"] = 0.01 * group["scale"]
    before, grads = {}, {}
    for n, (name, p) in enumerate(model.named_parameters()):
        before[name] = p.detach().double().numpy()
        grads[name] = np.random.default_rng(n).normal(size=p.shape)
        p.grad = torch.from_numpy(grads[name]).float()
    before = {name: values.copy() for name, values in before.items()}
    optimizer.step()
    slopes = [name for name in before if "slope" in name]
    assert len(slopes) == 1
    for name, p in model.named_parameters():
        lr = 0.04 if name in slopes else 0.01
        decay = 0.3 if name.endswith("weight") else 0.0
        expected = before[name] * (1 - lr * decay) - lr * grads[name] / (np.abs(grads[name]) + 1e-8)
        np.testing.assert_allclose(p.detach().numpy(), expected, atol=2e-6)


def nats(model, ids, targets) -> float:
    logits = model(ids).detach().double().numpy().reshape(-1, model.config.vocab)
    flat = targets.flatten().numpy()
    each = np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(flat)), flat.clip(0)]
    return each[flat >= 0].sum()


class Largest(TorchDispatchMode):
    """Notes the most rows of any result whose last size is `width`."""

    def __init__(self, width: int):
        super().__init__()
        self.width, self.rows = width, 0

    def __torch_dispatch__(self, call, types, args=(), kwargs=None):
        out = call(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple) else (out,):
            if isinstance(x, torch.Tensor) and x.dim() > 1 and x.shape[-1] == self.width:
                self.rows = max(self.rows, x.numel() // self.width)
        return out


@pytest.mark.parametrize("tied", [True, False])
def test_the_loss_in_blocks_is_the_loss_and_never_holds_more_logits(tied):
    model = make_decoder(DecoderConfig(vocab=97, layers=1, heads=2, width=16, tied=tied), "nope", 12)
    rng = np.random.default_rng(0)
    ids = torch.from_numpy(rng.integers(0, 97, (3, 11)))
    targets = torch.from_numpy(np.where(rng.random((3, 11)) < 0.2, -100, rng.integers(0, 97, (3, 11))))
    found, grads, rows = [], [], []
    for most in (10**9, 97 * 5):
        model.zero_grad()
        with Largest(97) as largest:
            loss = Objective(model, most)(ids, targets)
            loss.backward()
        found.append(loss.item())
        grads.append([p.grad for p in model.parameters()])
        rows.append(largest.rows)
    assert rows == [33, 16]  # the weights, transposed, have 16 rows; blocks have 5
    assert found == pytest.approx([nats(model, ids, targets)] * 2, rel=1e-6)
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


def test_the_loss_is_float32_under_autocast_and_zero_without_targets():
    model = make_decoder(DecoderConfig(vocab=97, layers=1, heads=2, width=16), "nope", 12)
    ids = torch.arange(24).view(2, 12)
    with torch.autocast("cpu", torch.bfloat16):
        loss = Objective(model)(ids, ids)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(nats(model, ids, ids), rel=0.02)
    assert Objective(model)(ids, torch.full_like(ids, -100)).item() == 0


def test_documents_are_passed_on():
    model = make_model(dropout=0.0)
    ids = torch.arange(12)[None] % 31
    doc = torch.tensor([[0] * 5 + [1] * 7])
    packed = Objective(model)(ids, ids, doc).item()
    apart = sum(nats(model, part, part) for part in (ids[:, :5], ids[:, 5:]))
    assert packed == pytest.approx(apart, rel=1e-5)


def test_a_run_diverges_only_after_enough_bad_steps_in_a_row():
    config = TrainConfig(steps=100, diverged_ratio=1.5, diverged_steps=3)
    ledger = Ledger()
    losses = [2.0, 5.3, 5.3, 5.1, 5.3, 5.3]  # the limit is 1.5 ln 31 = 5.151
    assert [ledger.record(x, 1.0, config, vocab=31) for x in losses] == [None] * 6
    assert "above 5.15 for 3 steps" in ledger.record(6.0, 1.0, config, vocab=31)
    patient = Ledger(first_loss=4.0)  # the limit is 6
    assert [patient.record(5.9, 1.0, config, vocab=31) for _ in range(5)] == [None] * 5


@pytest.mark.parametrize("loss, norm", [(math.nan, 1.0), (math.inf, 1.0), (2.0, math.nan), (2.0, math.inf)])
def test_numbers_that_are_not_finite_end_the_run_where_they_appear(loss, norm):
    ledger = Ledger()
    config = replace(TrainConfig(steps=9), lr=0.5)
    assert ledger.record(3.0, 1.0, config, 31) is None
    assert "at step 2. Lower the learning rate (it was at most 0.5)" in ledger.record(loss, norm, config, 31)


def test_a_line_holds_means_and_the_rate_skips_the_first():
    ledger, config = Ledger(), TrainConfig(steps=9)
    for busy in (4.0, 1.0, 2.0, 0.5):
        ledger.record(2.0, 1.0, config, 31)
        ledger.record(3.0, 2.0, config, 31)
        ledger.busy = busy
        line = ledger.line(0.1, tokens_per_step=10)
        assert line == {"step": ledger.step, "loss": 2.5, "lr": 0.1, "grad_norm": 1.5, "tokens_per_s": 20 / busy}
    assert (ledger.tokens_per_s, ledger.final_loss) == (20.0, 2.5)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the high-water mark restarts on Linux only")
def test_peak_memory_is_what_was_held_at_most_since_it_began():
    # In a process of its own, as its docstring asks: a worker that ran other tests hands out memory that it held before.
    code = """
import torch
from lengthen.train.memory import PeakMemory
torch.ones(60 * 2**18).sum()
memory = PeakMemory(torch.device("cpu"))
block = torch.ones(40 * 2**18)
del block
print(memory.mib())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 38 < float(done.stdout) < 55


def test_the_bar_shows_loss_rate_and_time_left():
    from rich.console import Console

    screen = io.StringIO()
    with progress_bar("rope seed 0", 200, Console(file=screen, width=160)) as report:
        report(50, 2.34567, 12345.6, 65.4)
    assert "rope seed 0" in screen.getvalue() and "50/200" in screen.getvalue()
    assert "loss 2.346  12,346 tokens/s  0:01:05 left" in screen.getvalue()


def test_signals_that_the_shell_ignores_stay_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupt() as interrupt:
            os.kill(os.getpid(), signal.SIGINT)
            assert not interrupt.requested and signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_log_file_gets_a_line_now_and_then(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("lengthen.train.progress.time.monotonic", lambda: now[0])
    from rich.console import Console

    with progress_bar("rope", 4, Console(file=io.StringIO())) as report:
        for step, at in ((1, 0.0), (2, 10.0), (3, 31.0), (4, 32.0)):
            now[0] = at
            report(step, 2.5, 1000.0, 9.0)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == ["rope: 1 of 4", "rope: 3 of 4", "rope: 4 of 4"]
    assert "loss 2.500, 1,000 tokens/s, 0:00:09 left" in lines[0]
