"""RoPE, ALiBi, a window and log-n temperature in one attention: composition is a constructor call."""

import torch

import lengthen
from lengthen.core import Causal, Geometric
from lengthen.methods.alibi import ALiBi
from lengthen.methods.log_n import LogN
from lengthen.methods.rope import Rotary
from lengthen.methods.window import Window

heads, head_size, tokens = 8, 32, 1000
scheme = lengthen.Scheme(
    rotation=Rotary(Geometric(10_000.0), head_size),
    terms=[ALiBi(heads)],
    pattern=Causal() & Window(256),
    temperature=LogN(512),
)
torch.manual_seed(0)
q, k, v = (torch.randn(2, heads, tokens, head_size) for _ in range(3))
out = lengthen.attend(scheme, q, k, v)
exact = lengthen.attend(scheme, q.double(), k.double(), v.double(), backend="dense")
print(f"{tuple(out.shape)}, largest difference from float64: {(out - exact).abs().max():.1e}")
