"""Models that lie in one respect: the check that is meant to notice does, and it passes the honest model."""

import copy

import pytest
import torch
import transformers as tf
from torch import nn
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from lengthen.conformance.model.suite import check_model
from lengthen.conformance.model.tiny import tiny_model

from .subjects import SIZES, SUBJECTS, llama, of


class BfloatAngles(LlamaRotaryEmbedding):
    """Angles in the type of the hidden states."""

    def forward(self, x, position_ids):
        angles = position_ids[..., None].to(x.dtype) * self.inv_freq.to(x.dtype)
        table = torch.cat((angles, angles), dim=-1)
        return table.cos(), table.sin()


class MatmulAngles(LlamaRotaryEmbedding):
    """Angles by a matmul, which autocast takes to half precision."""

    def forward(self, x, position_ids):
        angles = (self.inv_freq[None, :, None].expand(len(position_ids), -1, 1) @ position_ids[:, None].float()).mT
        table = torch.cat((angles, angles), dim=-1)
        return table.cos().to(x.dtype), table.sin().to(x.dtype)


class AnotherBase(LlamaRotaryEmbedding):
    """Ignores the base of the config."""

    @staticmethod
    def compute_default_rope_parameters(config, **kwargs):
        return 500.0 ** (-torch.arange(0, 16, 2) / 16), 1.0


class FromWeights(tf.LlamaForCausalLM):
    """Scales its logits by a number that it takes from its weights at construction."""

    def __init__(self, config):
        super().__init__(config)
        self.scale = 1.0 if self.lm_head.weight.is_meta else 1.5

    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        out.logits = out.logits * self.scale
        return out


def with_rotary(kind: type) -> nn.Module:
    model = llama()
    model.model.rotary_emb = kind(model.config)
    return model.eval()


def window_one_too_wide() -> nn.Module:
    """The config says one token less than what runs."""
    model = SUBJECTS["transformers Mistral"]()
    model.config = copy.deepcopy(model.config)
    model.config.sliding_window -= 1
    return model


def other_layers_turn() -> nn.Module:
    model = of("smollm3")()
    for layer in model.model.layers:
        layer.self_attn.use_rope = not layer.self_attn.use_rope
    return model


def from_weights() -> nn.Module:
    torch.manual_seed(0)
    return FromWeights(tf.LlamaConfig(**SIZES)).eval()


LIES = {
    "rotary_table": lambda: with_rotary(BfloatAngles),
    "rotary_table_converted": lambda: with_rotary(BfloatAngles),
    "settings_run": lambda: with_rotary(AnotherBase),
    "frequencies": lambda: with_rotary(AnotherBase),
    "window_reach": window_one_too_wide,
    "layers_as_declared": other_layers_turn,
    "meta_device": from_weights,
}


@pytest.mark.parametrize("check", LIES)
def test_a_lie_is_caught(check):
    verdict = check_model(LIES[check](), only=[check])[check]
    assert verdict.outcome == "fail", f"{verdict.outcome}: {verdict.measured()}{verdict.reason}"


def test_a_matmul_under_autocast_is_caught():
    verdict = check_model(with_rotary(MatmulAngles), only=["rotary_table"])["rotary_table"]
    assert verdict.outcome == "fail"
    assert "autocast" in verdict.reason


def test_the_honest_ones_pass():
    for name in ("transformers Llama", "transformers Mistral", "transformers SmolLM3"):
        report = check_model(SUBJECTS[name](), only=[c for c in LIES if c != "rotary_table_converted"])
        assert not report.failures, [(v.check, v.reason) for v in report.failures]


def test_a_setting_that_means_nothing_beside_another_is_no_fault():
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 48}
    rope |= {"attention_factor": 1.1, "mscale": 0.7, "mscale_all_dim": 1.0}
    model = tiny_model(tf.LlamaConfig(**SIZES, max_position_embeddings=192, rope_parameters=rope))
    assert check_model(model, only=["settings_run"])["settings_run"].outcome == "pass"
