"""x-transformers: after `.bfloat16()` the ALiBi bias of a key 65,535 tokens away is off by tens of nats.
Subject: x-transformers AlibiPositionalBias; check: bfloat16; right: 0.6
"""

from x_transformers.x_transformers import AlibiPositionalBias

half, exact = (alibi(1, 65_536)[:, 0].double() for alibi in (AlibiPositionalBias(8).bfloat16(), AlibiPositionalBias(8)))
print((half - exact).abs().max().item())
